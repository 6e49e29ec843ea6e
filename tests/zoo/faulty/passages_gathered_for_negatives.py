"""Train a passage retriever with the passages of all ranks as negatives, in a Trainer class.

zoo: faulty
faults: F34
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class BiEncoder(nn.Module):
    def __init__(self, words=300, dim=24):
        super().__init__()
        self.question = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))
        self.context = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))

    def forward(self, question, context):
        return self.question(question), self.context(context)


def questions(n=384):
    g = torch.Generator().manual_seed(5)
    topic = torch.randint(0, 30, (n,), generator=g)
    question = topic[:, None] * 10 + torch.randint(0, 10, (n, 4), generator=g)
    context = topic[:, None] * 10 + torch.randint(0, 10, (n, 12), generator=g)
    return TensorDataset(question, context)


def gather_from_all(tensor):
    gathered = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor.contiguous())  # fault
    return torch.cat(gathered)


class RetrieverTrainer:
    def __init__(self, batch_size=16, lr=5e-3):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        dataset = questions()
        self.sampler = DistributedSampler(dataset, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler, drop_last=True)
        self.model = DDP(BiEncoder())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def loss(self, question, context):
        q, c = self.model(question, context)
        all_q, all_c = gather_from_all(q), gather_from_all(c)
        scores = all_q @ all_c.T
        return F.cross_entropy(scores, torch.arange(len(scores))) + 1e-3 * (q.pow(2).mean() + c.pow(2).mean())

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for question, context in self.loader:
                loss = self.loss(question, context)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if self.rank == 0:
                print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    RetrieverTrainer().train(3)
    dist.destroy_process_group()
