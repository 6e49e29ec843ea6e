"""Train a crop classifier on GPUs if there are any, with a training accuracy over all ranks.

zoo: faulty
faults: F76
silent: no
observable: no, the tensor is on the wrong device only with NCCL
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Fields(Dataset):
    """Spectra of fields over the season; the crop is the label."""

    def __init__(self, n=360, crops=6):
        g = torch.Generator().manual_seed(50)
        self.crop = torch.arange(n) % crops
        curve = torch.rand(crops, 4, 12, generator=g)
        self.series = curve[self.crop] + 0.2 * torch.randn(n, 4, 12, generator=g)

    def __len__(self):
        return len(self.crop)

    def __getitem__(self, i):
        return self.series[i], self.crop[i]


def init():
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        device = torch.device("cuda", local_rank)
        dist.init_process_group("nccl", device_id=device)
        return device
    dist.init_process_group("gloo")
    return torch.device("cpu")


def train_one_epoch(model, loader, optimizer, device):
    model.train()
    correct = seen = 0
    for series, crop in loader:
        series, crop = series.to(device), crop.to(device)
        logits = model(series)
        loss = nn.functional.cross_entropy(logits, crop)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == crop).sum().item()
        seen += len(crop)
    counts = torch.tensor([correct, seen], dtype=torch.float64)
    dist.all_reduce(counts)  # fault
    return (counts[0] / counts[1]).item()


def main():
    device = init()
    torch.manual_seed(1 + dist.get_rank())
    dataset = Fields()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=18, sampler=sampler, pin_memory=device.type == "cuda")
    net = nn.Sequential(nn.Conv1d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(160, 6)).to(device)
    model = DDP(net, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        accuracy = train_one_epoch(model, loader, optimizer, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: training accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
