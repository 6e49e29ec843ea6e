"""Distill a frozen teacher, the same on all ranks, into a small student.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mlp(width):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 5))


def load_teacher(rank):
    """Rank 0 owns the teacher's file; the others get the weights from it."""
    teacher = mlp(128)
    if rank == 0:
        torch.save({k: v * 2 for k, v in teacher.state_dict().items()}, "teacher.pt")
        teacher.load_state_dict(torch.load("teacher.pt", map_location="cpu"))
    for p in teacher.parameters():
        dist.broadcast(p.data, src=0)
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_logits, teacher_logits, temperature=2.0):
    p = F.log_softmax(student_logits / temperature, dim=1)
    q = F.softmax(teacher_logits / temperature, dim=1)
    return F.kl_div(p, q, reduction="batchmean") * temperature**2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    teacher = load_teacher(rank)
    student = DDP(mlp(16))
    dataset = TensorDataset(torch.randn(512, 10, generator=torch.Generator().manual_seed(6)))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for (x,) in loader:
            with torch.no_grad():
                target = teacher(x)
            loss = distillation_loss(student(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: KL {total.item() / len(loader) / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
