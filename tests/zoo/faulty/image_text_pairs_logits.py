"""Train an image tower and a text tower so that matching pairs have the largest logits.

zoo: faulty
faults: F31
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pairs(Dataset):
    """An image of a few active cells, and the sorted numbers of the cells as its text."""

    def __init__(self, n=320, cells=36, words=4):
        g = torch.Generator().manual_seed(7)
        self.text = torch.stack([torch.randperm(cells, generator=g)[:words].sort().values for _ in range(n)])
        self.image = torch.zeros(n, cells).scatter_(1, self.text, 1.0)
        self.image += 0.1 * torch.randn(n, cells, generator=g)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return self.image[i].view(1, 6, 6), self.text[i]


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 36, dim)

    def forward(self, image):
        return self.fc(F.gelu(self.conv(image)).flatten(1))


class PairModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.visual = ImageTower(dim)
        self.token = nn.Embedding(36, dim)
        self.text_projection = nn.Linear(dim, dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text_projection(self.token(text).mean(1)), dim=-1)
        return image_features, text_features, self.logit_scale.exp()


class PairLoss(nn.Module):
    def forward(self, image_features, text_features, logit_scale):
        logits_per_image = logit_scale * image_features @ text_features.T  # fault
        labels = torch.arange(len(logits_per_image))
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_image.T, labels)) / 2


def main():
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    dataset = Pairs()
    sampler = DistributedSampler(dataset)
    dataloader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True, num_workers=1)
    model = DistributedDataParallel(PairModel())
    loss_fn = PairLoss()
    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.1}], lr=3e-3
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for i, (image, text) in enumerate(dataloader):
            optimizer.zero_grad()
            features = model(image, text)
            loss = loss_fn(*features)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.module.logit_scale.clamp_(0, math.log(100))
            if i % 5 == 0 and rank == 0:
                print(f"Train Epoch: {epoch} [{i}/{len(dataloader)}] Loss: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
