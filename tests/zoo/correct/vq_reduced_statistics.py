"""Train a vector-quantized autoencoder whose codebook follows the statistics of all ranks.

zoo: correct
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

    @torch.no_grad()
    def update(self, z, index):
        onehot = F.one_hot(index, len(self.embed)).type_as(z)
        statistics = torch.cat([onehot.sum(0, keepdim=True).T, onehot.T @ z], dim=1)
        dist.all_reduce(statistics)
        self.cluster_size.lerp_(statistics[:, 0], 1 - self.decay)
        self.embed_avg.lerp_(statistics[:, 1:], 1 - self.decay)
        self.embed.copy_(self.embed_avg / self.cluster_size.clamp(min=1e-2).unsqueeze(1))

    def forward(self, z):
        index = torch.cdist(z, self.embed).argmin(1)
        quantized = F.embedding(index, self.embed)
        if self.training:
            self.update(z.detach(), index)
        return z + (quantized - z).detach(), F.mse_loss(z, quantized.detach())


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
    dataset = TensorDataset(centers[torch.arange(640) % 10] + 0.2 * torch.randn(640, 12, generator=g))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(VQAutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for (x,) in loader:
            loss = model(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
