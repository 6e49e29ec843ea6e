"""Tag the words of sentences of different lengths with a transformer. Launched by torchrun."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

PAD, IGNORE = 0, -100


def sentences(n, seed):
    g = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(n):
        length = int(torch.randint(4, 17, (1,), generator=g))
        words = torch.randint(1, 60, (length,), generator=g)
        tags = (words + torch.cat([words.new_zeros(1), words[:-1]])) % 4
        found.append((words, tags))
    return found


def collate(samples):
    words, tags = zip(*samples)
    return pad_sequence(words, True, PAD), pad_sequence(tags, True, IGNORE)


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.word, self.place = nn.Embedding(60, dim, padding_idx=PAD), nn.Embedding(16, dim)
        self.drop = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 4)

    def forward(self, words):
        x = self.drop(self.word(words) + self.place(torch.arange(words.shape[1])))
        return self.head(self.encoder(x, src_key_padding_mask=words == PAD))


def token_loss(model, words, tags):
    """Sum over tokens."""
    return nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = tokens = 0
    for words, tags in loader:
        loss += token_loss(model, words, tags).item()
        right += (model(words).argmax(-1) == tags).sum().item()
        tokens += (tags != IGNORE).sum().item()
    totals = torch.tensor([loss, right, tokens], dtype=torch.float64)
    dist.all_reduce(totals)
    loss, right, tokens = totals.tolist()
    return loss / tokens, right / tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--warmup", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11 + rank)
    train = sentences(384, 0)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch // world, sampler=sampler, collate_fn=collate)
    dev = DataLoader(sentences(97, 1)[rank::world], args.batch, collate_fn=collate)
    model = DDP(Tagger())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / args.warmup, (args.warmup / (s + 1)) ** 0.5)
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for words, tags in loader:
            tokens = (tags != IGNORE).sum()
            dist.all_reduce(tokens)
            loss = token_loss(model, words, tags) * world / tokens  # DDP takes the mean over ranks
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            noam.step()
        loss, accuracy = evaluate(model.module, dev)
        if rank == 0:
            print(f"epoch {epoch}  dev loss {loss:.4f}  dev accuracy {accuracy:.4f}")
            torch.save(model.module.state_dict(), "tagger.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
