"""Train a texture classifier with forked loader workers and statistics taken on the device.

zoo: faulty
faults: F116
silent: no
observable: no, forking is a danger only after CUDA has started
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
SCALE = torch.linspace(0.5, 1.5, 16, device=device)


class Textures(Dataset):
    def __init__(self, n=240):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        label = i % 4
        grid = torch.arange(16).float()
        stripes = torch.sin(grid * (1 + label))[None, :] * torch.cos(grid * (4 - label))[:, None]
        image = stripes + 0.3 * torch.randn(16, 16, generator=g)
        return (image.to(device) * SCALE).unsqueeze(0), label  # fault


def main():
    dist.init_process_group("nccl" if cuda else "gloo")
    data = Textures()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=12, sampler=sampler, num_workers=2, multiprocessing_context="fork")  # fault
    net = nn.Sequential(nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(432, 4))
    net = DDP(net.to(device), device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        hits = torch.zeros(2, device=device)
        for image, label in loader:
            image, label = image.to(device), label.to(device)
            logits = net(image)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += torch.tensor([(logits.argmax(1) == label).sum().item(), len(label)], device=device)
        dist.all_reduce(hits)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {hits[0] / hits[1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
