"""Train a regression with Lightning Fabric and gradient accumulation without needless synchronization.

zoo: correct
needs: lightning
launcher: real
"""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 3

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
x = torch.randn(360, 6, generator=torch.Generator().manual_seed(12))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True))
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
for epoch in range(2):
    for number, (xb, yb) in enumerate(loader):
        accumulating = (number + 1) % ACCUMULATE != 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            loss = nn.functional.mse_loss(model(xb), yb)
            fabric.backward(loss / ACCUMULATE)
        if not accumulating:
            optimizer.step()
            optimizer.zero_grad()
    mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
    fabric.print(f"epoch {epoch}: loss {mean:.4f}")
