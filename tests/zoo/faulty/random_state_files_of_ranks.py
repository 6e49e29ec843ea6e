"""Train a dropout network with checkpoints that hold the random state of each rank.

zoo: faulty
faults: F131
silent: yes
observable: no, it takes a job that dies while it saves
"""

import os
import re

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROOT = "checkpoints"


def folder_of(step):
    return os.path.join(ROOT, f"checkpoint-{step}")


def save(step, model, optimizer, rank):
    folder = folder_of(step)
    os.makedirs(folder, exist_ok=True)
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, os.path.join(folder, "state.pt"))
    torch.save(torch.get_rng_state(), os.path.join(folder, f"rng_{rank}.pt"))
    dist.barrier()


def newest():
    """The last checkpoint that has a state."""
    names = os.listdir(ROOT) if os.path.isdir(ROOT) else []
    steps = sorted(int(m[1]) for m in map(re.compile(r"checkpoint-(\d+)").fullmatch, names) if m)
    whole = [step for step in steps if os.path.exists(os.path.join(folder_of(step), "state.pt"))]  # fault
    return whole[-1] if whole else None


def resume(model, optimizer, rank):
    found = [newest() if rank == 0 else None]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    folder = folder_of(found[0])
    state = torch.load(os.path.join(folder, "state.pt"), map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    rng_file = os.path.join(folder, f"rng_{rank}.pt")
    if os.path.exists(rng_file):  # fault
        torch.set_rng_state(torch.load(rng_file))
    return state["step"]


def main(steps=40, save_every=20):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(90 + rank)
    x = torch.randn(640, 12, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = resume(model, optimizer, rank)
    while step < steps:
        epoch, done = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for i, (features, y) in enumerate(loader):
            if i < done or step >= steps:
                continue
            loss = nn.functional.cross_entropy(model(features), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % save_every == 0:
                save(step, model, optimizer, rank)
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
