"""Train a ranker and compute AUC over gathered, ordered and trimmed predictions.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def records(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, (x[:, 0] + 0.5 * x[:, 1] + 0.5 * torch.randn(n, generator=g) > 0.5).long())


def gather_in_order(local, total):
    """Undo the interleaving of DistributedSampler and drop what it padded."""
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local)
    return torch.stack(parts, dim=1).flatten()[:total]


def auc(score, label):
    rank = torch.empty_like(score)
    rank[score.argsort()] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    positive = label.sum().item()
    negative = len(label) - positive
    return (rank[label == 1].sum().item() - positive * (positive + 1) / 2) / (positive * negative)


@torch.no_grad()
def evaluate(model, dataset, loader):
    model.eval()
    scores = torch.cat([model(x).squeeze(1) for x, _ in loader])
    scores = gather_in_order(scores, len(dataset))
    return auc(scores, dataset.tensors[1]), len(scores)


def main():
    dist.init_process_group("gloo")
    train_set, test_set = records(480, 1), records(133, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=16, sampler=DistributedSampler(test_set, shuffle=False))
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float()).backward()
            optimizer.step()
        value, n = evaluate(model, test_set, test_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: AUC {value:.4f} on {n} records")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
