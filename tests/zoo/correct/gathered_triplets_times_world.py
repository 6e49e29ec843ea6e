"""Train an embedding on triplets of the gathered batch; the loss is scaled by the world size, as in OpenGait.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def gather_keep_own(t):
    """Collect `t` from all ranks; only the own part carries a gradient."""
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t.detach())
    parts[dist.get_rank()] = t
    return torch.cat(parts)


def batch_all_triplets(embedding, label, margin=0.2):
    distance = torch.cdist(embedding, embedding)
    same = label[:, None] == label[None, :]
    hinge = F.relu(distance[:, :, None] - distance[:, None, :] + margin)
    valid = same[:, :, None] & ~same[:, None, :]
    return (hinge * valid).sum() / valid.sum()


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    g = torch.Generator().manual_seed(27)
    label = torch.arange(360) % 6
    x = torch.randn(6, 16, generator=g)[label] + 0.8 * torch.randn(360, 16, generator=g)
    dataset = TensorDataset(x, label)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = 0.0
        for xb, lb in loader:
            embedding = gather_keep_own(model(xb))
            loss = batch_all_triplets(embedding, gather_keep_own(lb))
            optimizer.zero_grad()
            (loss * world).backward()
            optimizer.step()
            total += loss.item() / len(loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: triplet loss {total:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
