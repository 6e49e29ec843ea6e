"""Train a classifier with Lightning Fabric in a loop written by hand.

zoo: faulty
faults: F01, F02
silent: yes
needs: lightning
launcher: real
"""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(5)
    x = torch.randn(384, 10, generator=torch.Generator().manual_seed(2))
    loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=16, shuffle=True)  # fault
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    for epoch in range(3):
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            total += torch.tensor([loss.item() * len(yb), len(yb)])
        total = fabric.all_reduce(total, reduce_op="sum")
        fabric.print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")


if __name__ == "__main__":
    main()
