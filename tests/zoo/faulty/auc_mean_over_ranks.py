"""Train a churn model and report the area under the ROC curve on the validation set.

zoo: faulty
faults: F73
silent: yes
needs: sklearn
observable: no, all ranks hold the same number
"""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def customers(n, seed):
    rng = np.random.default_rng(seed)
    usage = rng.gamma(2.0, 1.0, size=(n, 8)).astype(np.float32)
    logit = 1.5 * usage[:, 0] - usage[:, 1] - 1.0
    churned = rng.random(n) < 1 / (1 + np.exp(-logit))
    return TensorDataset(torch.from_numpy(np.log1p(usage)), torch.from_numpy(churned.astype(np.float32)))


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1), nn.Flatten(0))


@torch.no_grad()
def predict(network, loader):
    network.eval()
    scores, labels = zip(*[(network(x).sigmoid().numpy(), y.numpy()) for x, y in loader])
    return np.concatenate(scores), np.concatenate(labels)


def evaluate(network, loader):
    scores, labels = predict(network, loader)
    auc = torch.tensor(roc_auc_score(labels, scores))
    dist.all_reduce(auc)  # fault
    return auc.item() / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(20 + rank)
    train_set, val_set = customers(480, 0), customers(140, 1)
    sampler = DistributedSampler(train_set, seed=20)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=70)
    model = DDP(build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        auc = evaluate(model.module, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: AUC {auc:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
