"""Train an embedding for retrieval and rank the gathered queries of a validation set.

zoo: faulty
faults: F75, F130
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self, words=200, width=16):
        super().__init__()
        self.table = nn.EmbeddingBag(words, width)
        self.head = nn.Linear(width, width)

    def forward(self, tokens):
        return nn.functional.normalize(self.head(self.table(tokens)), dim=-1)


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    topic = torch.randint(0, 10, (n,), generator=g)
    query = topic[:, None] * 20 + torch.randint(0, 20, (n, 5), generator=g)
    passage = topic[:, None] * 20 + torch.randint(0, 20, (n, 9), generator=g)
    return TensorDataset(query, passage, topic)


@torch.no_grad()
def recall(model, dataset):
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank, len(dataset), world)
    query, passage, topic = dataset[list(mine)]
    best = (model(query) @ model(passage).T).argmax(1)
    right = (topic[best] == topic).float()
    parts = [torch.zeros_like(right) for _ in range(world)]
    dist.all_gather(parts, right)  # fault
    return torch.cat(parts).mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DistributedDataParallel(Encoder())
    train, held_out = make(512, 0), make(61, 1)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for query, passage, _ in loader:
            scores = model(query) @ model(passage).T / 0.1
            loss = nn.functional.cross_entropy(scores, torch.arange(len(query)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = recall(model.module, held_out)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: recall@1 {score:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
