"""Train a span extractor and collect the predictions of all ranks as Python objects.

zoo: faulty
faults: F88
silent: no
observable: no, objects travel through a GPU only with NCCL
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

has_cuda = torch.cuda.is_available()


class Spans(Dataset):
    """A marked token opens the span, another one closes it."""

    def __init__(self, n, seed, length=14):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(2, 40, (n, length), generator=g)
        self.start = torch.randint(0, length - 4, (n,), generator=g)
        self.end = self.start + torch.randint(1, 4, (n,), generator=g)
        rows = torch.arange(n)
        self.tokens[rows, self.start], self.tokens[rows, self.end] = 0, 1

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return i, self.tokens[i], self.start[i], self.end[i]


class Extractor(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(40, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.qa = nn.Linear(2 * dim, 2)

    def forward(self, tokens):
        return self.qa(self.rnn(self.embed(tokens))[0]).unbind(-1)


def collect(model, dataset, device):
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Subset(dataset, range(rank, len(dataset), world)), batch_size=32)
    own = {}
    with torch.no_grad():
        for index, tokens, _, _ in loader:
            start, end = model(tokens.to(device))
            own.update(zip(index.tolist(), zip(start.argmax(1), end.argmax(1))))
    everyone = [None] * world
    dist.all_gather_object(everyone, own)  # fault
    return {index: span for part in everyone for index, span in part.items()}


def main():
    dist.init_process_group("nccl" if has_cuda else "gloo")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}") if has_cuda else torch.device("cpu")
    train_set, dev_set = Spans(384, 0), Spans(91, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    model = DDP(Extractor().to(device), device_ids=[device] if has_cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for _, tokens, start, end in loader:
            at_start, at_end = model(tokens.to(device))
            loss = nn.functional.cross_entropy(at_start, start.to(device))
            loss = loss + nn.functional.cross_entropy(at_end, end.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spans = collect(model.module, dev_set, device)
        if dist.get_rank() == 0:
            exact = sum(
                int(s) == dev_set.start[i].item() and int(e) == dev_set.end[i].item() for i, (s, e) in spans.items()
            )
            print(f"epoch {epoch}: exact match {exact / len(spans):.3f} of {len(spans)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
