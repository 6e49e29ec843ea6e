"""Train a vector-quantized autoencoder whose codebook follows a moving average.

zoo: faulty
faults: F58
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class VectorQuantizer(nn.Module):
    def __init__(self, codes, dim, decay=0.9):
        super().__init__()
        self.decay = decay
        embed = torch.randn(codes, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(codes))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, z):
        index = torch.cdist(z, self.embed).argmin(1)
        quantized = F.embedding(index, self.embed)
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(index, len(self.embed)).type_as(z)
                self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)  # fault
                self.embed_avg.mul_(self.decay).add_(onehot.T @ z, alpha=1 - self.decay)
                self.embed.copy_(self.embed_avg / self.cluster_size.clamp(min=1e-2).unsqueeze(1))
        commit = F.mse_loss(z, quantized.detach())
        return z + (quantized - z).detach(), commit


class VQAutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.vq = VectorQuantizer(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, x):
        z, commit = self.vq(self.encoder(x))
        return F.mse_loss(self.decoder(z), x) + 0.25 * commit


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(4)
    centers = torch.randn(10, 12, generator=g) * 2
    x = centers[torch.randint(0, 10, (640,), generator=g)] + 0.2 * torch.randn(640, 12, generator=g)
    data = TensorDataset(x)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(VQAutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for (batch,) in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
