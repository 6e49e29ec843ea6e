"""Train a small residual network with random crops and flips, and keep the best one. One device."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Bright squares, crosses and bars on noise."""

    def __init__(self, size, seed, augment=None):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (size,), generator=g)
        self.images = 0.8 * torch.randn(size, 1, 12, 12, generator=g)
        masks = torch.zeros(3, 12, 12)
        masks[0, 3:9, 3:9] = masks[1, 5:7] = masks[1, :, 5:7] = masks[2, :, 4:8] = 1
        self.images[:, 0] += masks[self.labels]
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        return self.augment(image) if self.augment else image, self.labels[index]


def crop_and_flip(image, padding=1):
    image = F.pad(image, (padding,) * 4)
    top, left = (int(torch.randint(0, 2 * padding + 1, ())) for _ in range(2))
    image = image[:, top : top + 12, left : left + 12]
    return image.flip(-1) if random.random() < 0.5 else image


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def resnet(width=8):
    stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    return nn.Sequential(stem, Residual(width), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 3))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


if __name__ == "__main__":
    random.seed(5)
    torch.manual_seed(5)
    train_loader = DataLoader(Shapes(448, 0, crop_and_flip), batch_size=32, shuffle=True)
    valid_loader = DataLoader(Shapes(120, 1), batch_size=40)
    model = resnet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    best = 0.0
    for epoch in range(3):
        model.train()
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        score = accuracy(model, valid_loader)
        print(f"epoch {epoch}: validation accuracy {score:.4f}")
        if score > best:
            best = score
            torch.save({"epoch": epoch, "accuracy": score, "state_dict": model.state_dict()}, "best.pt")
