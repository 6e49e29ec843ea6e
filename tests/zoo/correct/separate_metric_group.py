"""Train with one process group for gradients and one for metrics.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Groups:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        everyone = list(range(self.world))
        self.data = dist.new_group(everyone, backend="gloo")
        self.metrics = dist.new_group(everyone, backend="gloo")
        self.solo = [dist.new_group([r], backend="gloo") for r in everyone][self.rank]


def main():
    groups = Groups()
    g = torch.Generator().manual_seed(71)
    x = torch.randn(480, 9, generator=g)
    dataset = TensorDataset(x, (x[:, :3].norm(dim=1) > x[:, 3:6].norm(dim=1)).long())
    sampler = DistributedSampler(dataset, num_replicas=groups.world, rank=groups.rank)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 48), nn.ReLU(), nn.Linear(48, 2)), process_group=groups.data)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    pending = None
    for epoch in range(3):
        sampler.set_epoch(epoch)
        meter = torch.zeros(3)
        for xb, yb in loader:
            logits = model(xb)
            loss = nn.functional.cross_entropy(logits, yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter += torch.tensor([loss.item() * len(yb), (logits.argmax(1) == yb).sum().item(), len(yb)])
        dist.barrier(group=groups.solo)
        pending = dist.all_reduce(meter, group=groups.metrics, async_op=True)
        pending.wait()
        if groups.rank == 0:
            print(f"epoch {epoch}: loss {meter[0] / meter[2]:.4f} accuracy {meter[1] / meter[2]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
