"""Train a regression with Accelerate and store the weights and the curve at the end.

zoo: faulty
faults: F93
silent: yes
needs: accelerate
"""

import json
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, features=7):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 32), nn.Mish(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def table(n=480):
    x = torch.randn(n, 7, generator=torch.Generator().manual_seed(3))
    return TensorDataset(x, x[:, 0].exp().clamp(max=4) - x[:, 1])


def main(out=Path("out"), epochs=2):
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(table(), batch_size=16, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    curve = []
    for epoch in range(epochs):
        model.train()
        losses = []
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean").item()
        curve.append(mean)
        accelerator.print(f"epoch {epoch}: mse {mean:.4f}")
    accelerator.wait_for_everyone()
    out.mkdir(exist_ok=True)
    torch.save(accelerator.unwrap_model(model).state_dict(), out / "model.pt")  # fault
    (out / "curve.json").write_text(json.dumps(curve))  # fault
    accelerator.end_training()


if __name__ == "__main__":
    main()
