"""Train an MLP through torch.compile over the wrapper.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.randn(480, 6, generator=torch.Generator().manual_seed(66))
    dataset = TensorDataset(x, (x[:, :2].pow(2).sum(1, keepdim=True)).sqrt())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
    ddp = DDP(nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1)))
    model = torch.compile(ddp, backend="eager")
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
    if rank == 0:
        torch.save(ddp.module.state_dict(), "mlp.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
