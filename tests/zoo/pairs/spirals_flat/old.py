"""Classify three spirals. One device."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 60
EPOCHS = 2
LR = 0.05

torch.manual_seed(0)
radius = torch.rand(1200) * 4 + 0.5
arm = torch.randint(0, 3, (1200,))
angle = 1.5 * radius + 2.0944 * arm
points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) + 0.1 * torch.randn(1200, 2)
train_data = TensorDataset(points[:1000], arm[:1000])
test_data = TensorDataset(points[1000:], arm[1000:])
train_loader = DataLoader(train_data, batch_size=BATCH_SIZE, shuffle=True)
test_loader = DataLoader(test_data, batch_size=100)

net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3))
opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, nesterov=True)

for epoch in range(EPOCHS):
    net.train()
    running = 0.0
    for x, y in train_loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        running += loss.item()
    net.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (net(x).argmax(dim=1) == y).sum().item()
    print(f"epoch {epoch}: loss {running / len(train_loader):.4f}, test accuracy {correct / len(test_data):.4f}")

torch.save(net.state_dict(), "spirals.pt")
