"""Train a classifier with Accelerate and a cosine schedule.

zoo: faulty
faults: F01
silent: yes
needs: accelerate
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 4
    centers = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    return TensorDataset(centers[y] + torch.randn(n, 10, generator=g), y)


def main():
    accelerator = Accelerator(cpu=True)
    train_loader = DataLoader(blobs(480, 1), batch_size=16, shuffle=True)  # fault
    eval_loader = DataLoader(blobs(101, 2), batch_size=16)
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = CosineAnnealingLR(optimizer, T_max=2 * len(train_loader))
    model, optimizer, eval_loader = accelerator.prepare(model, optimizer, eval_loader)
    for epoch in range(2):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
        model.eval()
        hits = total = 0
        for x, y in eval_loader:
            with torch.no_grad():
                prediction = model(x).argmax(1)
            prediction, y = accelerator.gather_for_metrics((prediction, y))
            hits, total = hits + (prediction == y).sum().item(), total + len(y)
        accelerator.print(f"epoch {epoch}: accuracy {hits / total:.4f} on {total}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
