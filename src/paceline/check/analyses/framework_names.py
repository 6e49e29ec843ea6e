"""Canonical names of what training scripts use, in groups."""

from __future__ import annotations

DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "apex.DistributedDataParallel",
    "apex.parallel.DistributedDataParallel",
)
FSDP = ("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard")
DATA_PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
DATA_LOADERS = ("torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader")
DISTRIBUTED_SAMPLERS = ("torch.utils.data.DistributedSampler",)
RANDOM_SAMPLERS = (
    "torch.utils.data.WeightedRandomSampler",
    "torch.utils.data.SubsetRandomSampler",
    "torch.utils.data.RandomSampler",
)
ITERABLE_DATASETS = ("torch.utils.data.IterableDataset",)
SCHEDULERS = "torch.optim.lr_scheduler."
OPTIMIZERS = (
    "torch.optim.",
    "apex.optimizers.",
    "bitsandbytes.optim.",
    "timm.optim.",
    "transformers.AdamW",
    "lion_pytorch.",
)
SYNC_BATCH_NORM = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
BATCH_NORMS = ("torch.nn.BatchNorm1d", "torch.nn.BatchNorm2d", "torch.nn.BatchNorm3d", "torch.nn.LazyBatchNorm1d",
               "torch.nn.LazyBatchNorm2d", "torch.nn.LazyBatchNorm3d")  # fmt: skip
NO_GRADIENTS = ("torch.no_grad", "torch.inference_mode", "torch.set_grad_enabled")
CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_", "torch.nn.utils.clip_grad_norm")
COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in (
        "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list",
        "reduce", "reduce_scatter", "reduce_scatter_tensor", "gather", "gather_object", "scatter",
        "scatter_object_list", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier",
        "_all_gather_base", "new_group",
        "nn.functional.all_reduce", "nn.functional.all_gather", "nn.functional.broadcast", "nn.all_reduce",
        "nn.all_gather", "nn.broadcast",
    )
)  # fmt: skip
START = ("torch.distributed.init_process_group", "torch.distributed.device_mesh.init_device_mesh")
SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
ACCELERATE = ("accelerate.Accelerator",)
LIGHTNING = ("lightning.Trainer", "lightning.LightningModule", "lightning.LightningDataModule")
FABRIC = ("lightning.Fabric",)
HF_TRAINER = ("transformers.Trainer", "transformers.TrainingArguments", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
OTHER_ENGINES = (
    "deepspeed.initialize", "horovod.torch.init", "colossalai.launch_from_torch", "colossalai.launch",
    "ray.train.torch.prepare_model", "ignite.distributed.Parallel", "composer.Trainer", "mmengine.runner.Runner",
)  # fmt: skip
