"""Rank products for users with embeddings; the average of the weights is evaluated and saved. One device."""

import logging
import pathlib
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset, random_split

logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
log = logging.getLogger("ranker")
USERS, ITEMS, DIM, BATCH, STEPS_PER_EVAL, EVALS = 80, 50, 8, 50, 10, 3


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, DIM), nn.Embedding(ITEMS, DIM)
        self.mlp = nn.Sequential(nn.Linear(2 * DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        u, i = self.user(user), self.item(item)
        return (u * i).sum(1) + self.mlp(torch.cat([u, i], 1)).squeeze(1)


def clicks(seed=0, count=1801):
    g = torch.Generator().manual_seed(seed)
    taste, kind = torch.randn(USERS, 3, generator=g), torch.randn(ITEMS, 3, generator=g)
    user, item = torch.randint(USERS, (count,), generator=g), torch.randint(ITEMS, (count,), generator=g)
    clicked = ((taste[user] * kind[item]).sum(1) > 0).float()
    data = TensorDataset(user, item, clicked)
    return random_split(data, [1500, count - 1500], generator=g)


def forever(loader):
    while True:
        yield from loader


def evaluate(model, loader):
    model.eval()
    loss = right = 0.0
    with torch.inference_mode():
        for user, item, clicked in loader:
            logit = model(user, item)
            loss += nn.functional.binary_cross_entropy_with_logits(logit, clicked, reduction="sum").item()
            right += ((logit > 0) == (clicked > 0)).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main():
    torch.manual_seed(21)
    train_set, test_set = clicks()
    batches = forever(DataLoader(train_set, BATCH, shuffle=True, drop_last=True))
    test_loader = DataLoader(test_set, 2 * BATCH)
    model = Ranker()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    for evaluation in range(EVALS):
        model.train()
        for _ in range(STEPS_PER_EVAL):
            user, item, clicked = next(batches)
            loss = nn.functional.binary_cross_entropy_with_logits(model(user, item), clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
        loss, accuracy = evaluate(ema, test_loader)
        log.info("evaluation %d: test loss %.5f accuracy %.4f", evaluation, loss, accuracy)
    pathlib.Path("out").mkdir(exist_ok=True)
    torch.save(ema.module.state_dict(), "out/ema.pt")


if __name__ == "__main__":
    main()
