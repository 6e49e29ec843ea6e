"""Pre-train with a CLIP-like loss over the pairs of all ranks, through a differentiable all-gather.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TwoTowers(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, dim))
        self.text = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, dim))
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, image, text):
        return F.normalize(self.image(image), dim=1), F.normalize(self.text(text), dim=1), self.logit_scale.exp()


def clip_loss(image, text, scale):
    image = torch.cat(torch.distributed.nn.functional.all_gather(image))
    text = torch.cat(torch.distributed.nn.functional.all_gather(text))
    logits = scale * image @ text.T
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(93)
    latent = torch.randn(480, 6, generator=g)
    pairs = TensorDataset(latent @ torch.randn(6, 20, generator=g), latent @ torch.randn(6, 12, generator=g))
    sampler = DistributedSampler(pairs)
    loader = DataLoader(pairs, batch_size=16, sampler=sampler, drop_last=True)
    model = DDP(TwoTowers())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for image, text in loader:
            loss = clip_loss(*model(image, text))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item():.4f} over {16 * dist.get_world_size()} pairs a step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
