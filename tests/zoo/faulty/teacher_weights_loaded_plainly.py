"""Distill a teacher into a smaller student; the teacher comes from a file.

zoo: faulty
faults: F98
silent: no
observable: no, tensors are saved from a GPU only on a machine with CUDA
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mlp(width):
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 5))


def task(n=480):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(n, 16, generator=g)
    return TensorDataset(x, (x @ torch.randn(16, 5, generator=g)).argmax(1))


def make_teacher(path, device):
    teacher = mlp(96).to(device)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for x, y in DataLoader(task(), batch_size=40):
        optimizer.zero_grad()
        F.cross_entropy(teacher(x.to(device)), y.to(device)).backward()
        optimizer.step()
    torch.save(teacher.state_dict(), path)


def load_teacher(path, device):
    teacher = mlp(96)
    teacher.load_state_dict(torch.load(path, weights_only=True))  # fault
    return teacher.to(device).eval().requires_grad_(False)


def distillation_loss(student, teacher, target, temperature, alpha):
    soft = F.kl_div(
        F.log_softmax(student / temperature, dim=1), F.softmax(teacher / temperature, dim=1), reduction="batchmean"
    )
    return alpha * temperature**2 * soft + (1 - alpha) * F.cross_entropy(student, target)


def main(args):
    use_cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if use_cuda else "cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if use_cuda else "gloo")
    if dist.get_rank() == 0 and not os.path.exists(args.teacher):
        make_teacher(args.teacher, device)
    dist.barrier()
    teacher = load_teacher(args.teacher, device)
    student = DistributedDataParallel(mlp(24).to(device), device_ids=[device.index] if use_cuda else None)
    dataset = task()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = distillation_loss(student(x), teacher(x), y, args.temperature, args.alpha)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher", default="teacher.pt")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    main(parser.parse_args())
