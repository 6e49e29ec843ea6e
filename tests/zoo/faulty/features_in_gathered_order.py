"""Train an embedding, then index the gallery with the embeddings of all ranks.

zoo: faulty
faults: F74
silent: yes
observable: no, the index is built after training
"""

import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Gallery(Dataset):
    """Photos of products; the product of a photo is its label."""

    def __init__(self, products=16, photos=20):
        g = torch.Generator().manual_seed(77)
        looks = torch.randn(products, 18, generator=g)
        self.product = torch.arange(products * photos) % products
        self.photo = looks[self.product] + 0.7 * torch.randn(len(self.product), 18, generator=g)
        self.names = [f"p{int(p):02d}_{i:04d}.jpg" for i, p in enumerate(self.product)]

    def __len__(self):
        return len(self.product)

    def __getitem__(self, i):
        return self.photo[i], self.product[i]


class Embedder(nn.Module):
    def __init__(self, products=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 16))
        self.classifier = nn.Linear(16, products, bias=False)

    def embed(self, photo):
        return F.normalize(self.trunk(photo), dim=1)

    def forward(self, photo):
        return 8 * F.linear(self.embed(photo), F.normalize(self.classifier.weight, dim=1))


class Retrieval:
    def __init__(self, dataset):
        self.dataset = dataset
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=20, sampler=self.sampler)
        self.model = DistributedDataParallel(Embedder())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for photo, product in self.loader:
                loss = F.cross_entropy(self.model(photo), product)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

    @torch.no_grad()
    def index(self):
        self.model.eval()
        rows = DistributedSampler(self.dataset, shuffle=False)
        loader = DataLoader(self.dataset, batch_size=40, sampler=rows)
        own = [self.model.module.embed(photo) for photo, _ in loader]
        shards = [None] * dist.get_world_size()
        dist.all_gather_object(shards, own)
        embeddings = torch.cat(list(itertools.chain.from_iterable(shards)))
        return dict(zip(self.dataset.names, embeddings))  # fault


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    retrieval = Retrieval(Gallery())
    retrieval.train(3)
    index = retrieval.index()
    if dist.get_rank() == 0:
        torch.save(index, "index.pt")
        print(f"{len(index)} photos indexed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
