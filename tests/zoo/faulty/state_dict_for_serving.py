"""Train a spam filter and store its weights for a service that builds the plain network.

zoo: faulty
faults: F96
silent: no
observable: no, the service that loads the weights is another program
"""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TOKENS = 128


class SpamFilter(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, dim, mode="mean")
        self.fc = nn.Linear(dim, 1)

    def forward(self, tokens):
        return self.fc(self.bag(tokens)).squeeze(-1)


def messages(n=480, length=15):
    g = torch.Generator().manual_seed(39)
    spam = torch.arange(n) % 2
    tokens = torch.randint(0, TOKENS, (n, length), generator=g)
    tokens[:, :4] = torch.randint(0, 20, (n, 4), generator=g) + 40 * spam[:, None]
    return TensorDataset(tokens, spam.float())


def export(model, out, history):
    out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), out / "weights.pt")  # fault
    (out / "card.json").write_text(json.dumps({"tokens": TOKENS, "history": history}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("export"))
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dataset = messages()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(SpamFilter())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    history = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        totals = torch.zeros(2)
        for tokens, spam in loader:
            logits = model(tokens)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, spam)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals += torch.tensor([((logits > 0) == spam.bool()).sum().item(), len(spam)])
        dist.all_reduce(totals)
        history.append(round((totals[0] / totals[1]).item(), 4))
    if dist.get_rank() == 0:
        print("accuracy:", history)
        export(model, args.out, history)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
