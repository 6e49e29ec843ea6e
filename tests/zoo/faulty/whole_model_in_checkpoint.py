"""Train a graph network on small molecules-like graphs and keep the whole model in a file.

zoo: faulty
faults: F97
silent: no
observable: no, the run does not load the file
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Graphs(Dataset):
    def __init__(self, n=320, nodes=8):
        g = torch.Generator().manual_seed(28)
        upper = torch.triu((torch.rand(n, nodes, nodes, generator=g) < 0.3).float(), diagonal=1)
        self.adjacency = upper + upper.transpose(1, 2)
        self.kind = torch.randint(0, 4, (n, nodes), generator=g)
        self.target = self.adjacency.sum((1, 2)) / 20 + (self.kind == 2).sum(1) / 10

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        return self.adjacency[i], self.kind[i], self.target[i]


class MessagePassing(nn.Module):
    def __init__(self, dim=24, rounds=2):
        super().__init__()
        self.embed = nn.Embedding(4, dim)
        self.message = nn.ModuleList(nn.Linear(dim, dim) for _ in range(rounds))
        self.update = nn.ModuleList(nn.GRUCell(dim, dim) for _ in range(rounds))
        self.readout = nn.Linear(dim, 1)

    def forward(self, adjacency, kind):
        h = self.embed(kind)
        for message, update in zip(self.message, self.update):
            m = adjacency @ torch.relu(message(h))
            h = update(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        return self.readout(h.sum(1)).squeeze(1)


def save_checkpoint(model, optimizer, epoch, path):
    checkpoint = {"epoch": epoch, "model": model, "optimizer": optimizer.state_dict()}
    torch.save(checkpoint, path)  # fault


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Graphs()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(MessagePassing())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for adjacency, kind, target in loader:
            loss = nn.functional.mse_loss(model(adjacency, kind), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: mse {loss.item():.4f}")
            save_checkpoint(model, optimizer, epoch, "molecules.ckpt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
