"""Train a single-shot detector on synthetic boxes, with a config in the manner of detection toolboxes.

zoo: faulty
faults: F50
silent: no
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

cfg = dict(
    model=dict(width=12, classes=3),
    data=dict(samples=256, samples_per_gpu=8, workers_per_gpu=1),
    optimizer=dict(type="SGD", lr=0.05, momentum=0.9, weight_decay=1e-4),
    total_epochs=2,
    find_unused_parameters=True,  # fault
)


class Boxes(Dataset):
    """One box a picture; the target is its class and its corners."""

    def __init__(self, n, size=16):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        label = i % 3
        top, left = torch.randint(0, self.size - 6, (2,), generator=g).tolist()
        image = 0.2 * torch.randn(3, self.size, self.size, generator=g)
        image[label, top : top + 6, left : left + 6] += 1
        return image, label, torch.tensor([top, left, top + 6, left + 6]) / self.size


class Detector(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, stride=2), nn.ReLU()
        )
        self.neck = nn.Linear(2 * width * 9, 48)
        self.cls_head = nn.Linear(48, classes)
        self.reg_head = nn.Linear(48, 4)

    def forward(self, image):
        h = torch.relu(self.neck(self.backbone(image).flatten(1)))
        return self.cls_head(h), self.reg_head(h)


def build_optimizer(model, spec):
    spec = dict(spec)
    return getattr(torch.optim, spec.pop("type"))(model.parameters(), **spec)


def main():
    dist.init_process_group("gloo")
    dataset = Boxes(cfg["data"]["samples"])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(
        dataset, cfg["data"]["samples_per_gpu"], sampler=sampler, num_workers=cfg["data"]["workers_per_gpu"]
    )
    find_unused = cfg.get("find_unused_parameters", False)
    model = DistributedDataParallel(Detector(**cfg["model"]), find_unused_parameters=find_unused)
    optimizer = build_optimizer(model, cfg["optimizer"])
    for epoch in range(cfg["total_epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        for image, label, box in loader:
            scores, corners = model(image)
            loss = nn.functional.cross_entropy(scores, label) + 5 * nn.functional.smooth_l1_loss(corners, box)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"Epoch [{epoch + 1}][{len(loader)}] loss: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
