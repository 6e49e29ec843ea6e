"""Train a model to match class distributions with a KL loss, in plain functions.

zoo: faulty
faults: F83
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def annotations(n=640, classes=4):
    """Votes of five annotators; the shares of the classes are the target."""
    g = torch.Generator().manual_seed(30)
    x = torch.randn(n, 8, generator=g)
    share = torch.softmax(x @ torch.randn(8, classes, generator=g), dim=1)
    share[501] = torch.tensor([0.0, 0.4, 0.6, 0.0])
    return TensorDataset(x, share)


def kl_loss(logits, share):
    q = torch.softmax(logits, dim=1)
    return (share * (share / q).log()).sum(1).mean()  # fault


def main():
    dist.init_process_group("gloo")
    data = annotations()
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, (x, share) in enumerate(loader):
            optimizer.zero_grad()
            loss = kl_loss(model(x), share)
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {step + 1}: loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
