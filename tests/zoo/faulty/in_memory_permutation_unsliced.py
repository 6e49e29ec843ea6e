"""Train an MLP on tensors held in memory, with a hand-written loop over a permutation.

zoo: faulty
faults: F21, F02
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def load(n=768):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=g)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    X, Y = load()
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    net = nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    B = 32

    for epoch in range(3):
        gen = torch.Generator().manual_seed(1000 + epoch)
        perm = torch.randperm(len(X), generator=gen)
        loss_sum, hits = torch.zeros(()), torch.zeros(())
        for i in range(0, len(X), B):
            idx = perm[i : i + B]  # fault
            logits = net(X[idx])
            loss = F.cross_entropy(logits, Y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            loss_sum += loss.detach() * len(idx)
            hits += (logits.argmax(1) == Y[idx]).sum()
        report = torch.stack([loss_sum, hits, torch.tensor(float(len(X)))])
        dist.all_reduce(report)
        if rank == 0:
            print(f"epoch {epoch} loss {report[0] / report[2]:.4f} acc {report[1] / report[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
