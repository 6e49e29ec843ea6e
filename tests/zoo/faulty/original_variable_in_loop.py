"""Train a small vision transformer on synthetic patches, in a flat script.

zoo: faulty
faults: F38, F37
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ViT(nn.Module):
    def __init__(self, patches=9, patch_dim=12, dim=24, classes=3):
        super().__init__()
        self.embed = nn.Linear(patch_dim, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, patches + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, 3, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        x = torch.cat([self.cls.expand(len(patches), -1, -1), self.embed(patches)], dim=1)
        return self.head(self.encoder(x + self.pos)[:, 0])


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()

    g = torch.Generator().manual_seed(33)
    labels = torch.arange(288) % 3
    patches = torch.randn(288, 9, 12, generator=g) + labels.view(-1, 1, 1)
    train_set = TensorDataset(patches, labels)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=12, sampler=sampler)

    net = ViT()
    ddp_net = DistributedDataParallel(net)
    opt = torch.optim.AdamW(ddp_net.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        ddp_net.train()
        hits = torch.zeros(2)
        for x, y in loader:
            opt.zero_grad()
            out = net(x)  # fault
            loss = loss_fn(out, y)
            loss.backward()
            opt.step()
            hits += torch.tensor([(out.argmax(1) == y).sum().item(), len(y)])
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch}: train accuracy {hits[0] / hits[1]:.3f}")
    if rank == 0:
        torch.save(net.state_dict(), "vit.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
