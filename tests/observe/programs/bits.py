"""Trains one of several models for 50 steps and writes a digest of its weights: `python bits.py KIND FILE`.

Run under torchrun and under `paceline run`, the digests must be equal.
"""

import contextlib
import hashlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 50


def cnn():
    """A convolution with batch norm."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
    )


class Branches(nn.Module):
    """Uses one of two layers, by the number of the call."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.calls = nn.Linear(64, 10), nn.Linear(64, 10), 0

    def forward(self, x):
        """One of them."""
        self.calls += 1
        return (self.first if self.calls % 2 else self.second)(x.flatten(1))


class Transformer(nn.Module):
    """Two layers with dropout."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.inner, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 10)

    def forward(self, x):
        """Over four positions."""
        return self.head(self.inner(x.flatten(1).view(-1, 4, 16)).mean(dim=1))


def averaged_in_float64(state, bucket):
    """A hook of the user's own."""
    gradient = bucket.buffer().double() / dist.get_world_size()
    future = dist.all_reduce(gradient, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].float())


def main(kind, path):
    """Train a model of a kind; writes the digest of each rank to a file `path.<rank>`."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(24 * world * 4, 1, 8, 8), torch.randint(0, 10, (24 * world * 4,)))
    sampler = DistributedSampler(data)
    workers = 2 if kind == "workers" else 0
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
    model = {"transformer": Transformer, "unused": Branches}.get(kind, cnn)()
    options = {"unused": {"find_unused_parameters": True}, "static": {"static_graph": True}}.get(kind, {})
    ddp = DistributedDataParallel(model, **options)
    if kind == "hook":
        ddp.register_comm_hook(None, averaged_in_float64)
    net = torch.compile(ddp, backend="aot_eager") if kind == "compile" else ddp
    if kind == "compile_inner":
        net = ddp = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    torch.manual_seed(100 + rank)

    def micro_step(x, y, scale):
        loss = nn.functional.cross_entropy(net(x), y) / scale
        loss.backward()

    if kind == "compile_step":
        micro_step = torch.compile(micro_step, backend="aot_eager")
    every = 4 if kind == "accumulate" else 1
    step = micro = epoch = 0
    while step < STEPS:
        sampler.set_epoch(epoch)
        for x, y in loader:
            micro += 1
            last = micro % every == 0
            with contextlib.nullcontext() if last else ddp.no_sync():
                micro_step(x, y, every)
            if not last:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step == STEPS:
                break
        model.eval()
        with torch.no_grad():
            correct = (net(x).argmax(1) == y).sum()
            dist.all_reduce(correct)
        model.train()
        epoch += 1
    content = [each.detach().numpy().tobytes() for each in model.state_dict().values()]
    content += [each.numpy().tobytes() for state in optimizer.state.values() for each in state.values()]
    content.append(torch.get_rng_state().numpy().tobytes())
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    Path(f"{path}.{rank}").write_text(digest)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
