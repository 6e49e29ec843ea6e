"""Train an autoregressive model of short melodies and compose one at the end.

zoo: faulty
faults: F40
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NOTES, LENGTH = 16, 12


class MelodyModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(NOTES, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, NOTES)

    def forward(self, notes):
        return self.out(self.rnn(self.embed(notes))[0])

    @torch.no_grad()
    def compose(self, first, length):
        notes = first
        for _ in range(length):
            nxt = self(notes)[:, -1].softmax(-1).multinomial(1)
            notes = torch.cat([notes, nxt], dim=1)
        return notes


def melodies(n=320):
    g = torch.Generator().manual_seed(0)
    root = torch.randint(0, NOTES, (n, 1), generator=g)
    pattern = torch.tensor([0, 2, 4, 5, 7, 5, 4, 2, 0, 4, 7, 4, 0])
    return TensorDataset((root + pattern[: LENGTH + 1]) % NOTES)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    dataset = melodies()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(MelodyModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (notes,) in loader:
            logits = model(notes[:, :-1])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), notes[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.barrier()
    if rank == 0:
        melody = model.compose(torch.tensor([[3]]), LENGTH)  # fault
        print("composed:", melody[0].tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
