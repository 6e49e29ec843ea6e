"""One name for what a package offers under several."""

from __future__ import annotations

from functools import lru_cache

_PREFIXES = (
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.distributed.fsdp.fully_sharded_data_parallel.", "torch.distributed.fsdp."),
    ("torch.distributed._composable.fsdp.", "torch.distributed.fsdp."),
    ("torch.cuda.amp.grad_scaler.", "torch.amp."),
    ("torch.cuda.amp.", "torch.amp."),
    ("torch.multiprocessing.spawn.", "torch.multiprocessing."),
    ("torch.nn.modules.batchnorm.", "torch.nn."),
    ("torch.nn.modules.", "torch.nn."),
    ("torch.optim.sgd.", "torch.optim."),
    ("torch.optim.adam.", "torch.optim."),
    ("torch.optim.adamw.", "torch.optim."),
    ("torch.nn.utils.clip_grad.", "torch.nn.utils."),
    ("torch.autograd.functional.", "torch.autograd."),
    ("torch.utils.tensorboard.writer.", "torch.utils.tensorboard."),
    ("tensorboardX.", "torch.utils.tensorboard."),
    ("pytorch_lightning.", "lightning."),
    ("lightning.pytorch.", "lightning."),
    ("lightning_fabric.", "lightning.fabric."),
    ("lightning.fabric.fabric.", "lightning.fabric."),
    ("accelerate.accelerator.", "accelerate."),
    ("tqdm.auto.", "tqdm."),
    ("tqdm.autonotebook.", "tqdm."),
    ("tqdm.notebook.", "tqdm."),
    ("apex.parallel.", "apex."),
)
_NAMES = {
    "pytorch_lightning": "lightning",
    "lightning.pytorch": "lightning",
    "lightning.fabric.Fabric": "lightning.Fabric",
    "lightning.core.LightningModule": "lightning.LightningModule",
    "torch.distributed.fsdp.FSDP": "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.multiprocessing.spawn.spawn": "torch.multiprocessing.spawn",
    "torch.save": "torch.save",
    "builtins.open": "builtins.open",
    "io.open": "builtins.open",
}


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical form of a dotted name."""
    if name in _NAMES:
        return _NAMES[name]
    for prefix, instead in _PREFIXES:
        if name.startswith(prefix):
            return canonical(instead + name[len(prefix) :])
    return name
