"""Train a language-like model sharded with fully_shard, written as a short function.

zoo: faulty
faults: F02, F01
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = nn.Sequential(nn.Embedding(32, 16), nn.Flatten(), nn.Linear(8 * 16, 32))
    fully_shard(model)
    tokens = torch.randint(0, 32, (320, 9), generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, -1]), batch_size=16, shuffle=True)  # fault
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sums = torch.zeros(2)
        for context, target in loader:
            loss = nn.functional.cross_entropy(model(context), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(sums)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
