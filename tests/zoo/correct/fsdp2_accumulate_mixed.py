"""Train a residual network sharded with fully_shard, with gradient accumulation and a checkpoint of rank 0.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.mix(self.norm(x)))


def main(accumulate=2, epochs=2):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = nn.Sequential(nn.Linear(12, 24), Block(24), Block(24), nn.Linear(24, 3))
    for block in (model[1], model[2]):
        fully_shard(block)
    fully_shard(model)
    x = torch.randn(384, 12, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(x, x[:, :3].argmax(1))
    sampler = DistributedSampler(data, seed=8)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for number, (xb, yb) in enumerate(loader):
            last = (number + 1) % accumulate == 0
            model.set_requires_gradient_sync(last)
            loss = nn.functional.cross_entropy(model(xb), yb)
            (loss / accumulate).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            sums += torch.tensor([loss.item() * len(yb), len(yb)])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, "sharded.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
