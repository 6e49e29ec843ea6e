"""Digits on one device: the script before it is made distributed. Its twin is digits_ddp.py.

python examples/digits_single.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train_set, test_set = TensorDataset(x[:1438], y[:1438]), TensorDataset(x[1438:], y[1438:])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=64)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(train_loader))
    for epoch in range(3):
        model.train()
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test_loader)
        print(f"epoch {epoch}: test accuracy {correct / len(test_set):.4f}")
    torch.save(model.state_dict(), "digits.pt")


if __name__ == "__main__":
    main()
