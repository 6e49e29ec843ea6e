"""Train a sequence tagger on padded sentences; the loss is normalized by the tokens of all ranks.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IGNORE = -100


class Sentences(Dataset):
    def __init__(self, n=384, vocab=40):
        g = torch.Generator().manual_seed(3)
        self.items = [torch.randint(1, vocab, (int(k),), generator=g) for k in torch.randint(2, 15, (n,), generator=g)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        tokens = self.items[i]
        return tokens, tokens % 3


def collate(batch):
    tokens, tags = zip(*batch)
    pad = nn.utils.rnn.pad_sequence
    return pad(tokens, batch_first=True), pad(tags, batch_first=True, padding_value=IGNORE)


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 3)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Sentences()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler, collate_fn=collate)
    model = DDP(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        stats = torch.zeros(2)
        for tokens, tags in loader:
            count = (tags != IGNORE).sum().float()
            total_count = count.clone()
            dist.all_reduce(total_count)
            logits = model(tokens)
            loss_sum = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum")
            optimizer.zero_grad()
            (loss_sum * world / total_count).backward()
            optimizer.step()
            stats += torch.stack([loss_sum.detach(), count])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: loss per token {stats[0] / stats[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
