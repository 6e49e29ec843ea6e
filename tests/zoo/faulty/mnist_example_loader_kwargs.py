"""Train a digit convnet on several ranks, grown out of the MNIST example with its loader keyword arguments.

zoo: faulty
faults: F04
silent: no
observable: no, the loader gets shuffle=True only on a machine with CUDA
args: --epochs 2
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Strokes(Dataset):
    """Digits drawn as a few bars on a small canvas."""

    def __init__(self, n=320):
        self.n = n
        self.bars = torch.rand(10, 1, 14, 14, generator=torch.Generator().manual_seed(1)) > 0.7

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        noise = torch.rand(1, 14, 14, generator=torch.Generator().manual_seed(i))
        return self.bars[i % 10].float() * 0.8 + 0.4 * noise, i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.fc1 = nn.Linear(16 * 25, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0 and dist.get_rank() == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(train_loader)}]\tLoss: {loss.item():.6f}")


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N")
    parser.add_argument("--epochs", type=int, default=14, metavar="N")
    parser.add_argument("--lr", type=float, default=0.5, metavar="LR")
    parser.add_argument("--gamma", type=float, default=0.7, metavar="M")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--log-interval", type=int, default=5, metavar="N")
    args = parser.parse_args()
    use_cuda = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    if use_cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    dist.init_process_group("nccl" if use_cuda else "gloo")
    torch.manual_seed(args.seed)

    dataset = Strokes()
    sampler = DistributedSampler(dataset, seed=args.seed)
    train_kwargs = {"batch_size": args.batch_size, "sampler": sampler}
    if use_cuda:
        cuda_kwargs = {"num_workers": 1, "pin_memory": True, "shuffle": True}  # fault
        train_kwargs.update(cuda_kwargs)
    train_loader = DataLoader(dataset, **train_kwargs)

    model = DDP(Net().to(device), device_ids=[local_rank] if use_cuda else None)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        train(args, model, device, train_loader, optimizer, epoch)
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
