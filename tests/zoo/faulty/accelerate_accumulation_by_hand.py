"""Train a classifier with Accelerate and four micro batches for each update.

zoo: faulty
faults: F27
silent: yes
needs: accelerate
observable: no, the ranks stay equal; only a run with one large batch differs
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4


def spirals(n=640):
    g = torch.Generator().manual_seed(9)
    y = torch.arange(n) % 2
    t = 3 * torch.rand(n, generator=g)
    x = torch.stack([t * torch.cos(t + 3.14 * y), t * torch.sin(t + 3.14 * y)], dim=1)
    return TensorDataset(x, y)


def main():
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(spirals(), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        total = 0.0
        for step, (x, y) in enumerate(loader, start=1):
            if step % ACCUMULATE != 0:
                with accelerator.no_sync(model):
                    loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)  # fault
            else:
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)  # fault
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        mean = accelerator.reduce(torch.tensor(total / len(loader)), reduction="mean")
        accelerator.print(f"epoch {epoch}: loss {mean.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
