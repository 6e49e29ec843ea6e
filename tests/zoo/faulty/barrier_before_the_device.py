"""Train a speaker model; the first process writes the list of speakers and the others wait.

zoo: faulty
faults: F117
silent: no
observable: no, there is no device to bind on CPU
"""

import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    if dist.get_rank() == 0:
        speakers = [f"speaker-{i:02d}" for i in range(12)]
        with open("speakers.json", "w") as f:
            json.dump(speakers, f)
    dist.barrier()  # fault
    with open("speakers.json") as f:
        return json.load(f)


class SpeakerNet(nn.Module):
    def __init__(self, speakers, bands=18, dim=24):
        super().__init__()
        self.conv = nn.Conv1d(bands, dim, 3)
        self.attention = nn.Conv1d(dim, 1, 1)
        self.speakers = nn.Parameter(torch.randn(speakers, dim) / dim**0.5)

    def forward(self, x):
        h = torch.relu(self.conv(x))
        pooled = (h * self.attention(h).softmax(-1)).sum(-1)
        return 10 * F.linear(F.normalize(pooled, dim=1), F.normalize(self.speakers, dim=1))


def utterances(speakers, n=360):
    g = torch.Generator().manual_seed(66)
    who = torch.arange(n) % speakers
    voice = torch.rand(speakers, 18, 1, generator=g)
    return TensorDataset(voice[who] + 0.3 * torch.randn(n, 18, 15, generator=g), who)


def main():
    speakers = setup()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    dataset = utterances(len(speakers))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=15, sampler=sampler)
    model = SpeakerNet(len(speakers)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, who in loader:
            loss = F.cross_entropy(model(x.to(device)), who.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
