"""Fine-tune a pair classifier in the manner of older run scripts, with a logger for the first process.

zoo: faulty
faults: F109, F93
silent: yes
"""

import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logger = logging.getLogger(__name__)


class PairClassifier(nn.Module):
    def __init__(self, vocab=64, dim=20):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.classifier = nn.Sequential(nn.Linear(4 * dim, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))

    def forward(self, premise, hypothesis):
        a, b = self.embed(premise), self.embed(hypothesis)
        return self.classifier(torch.cat([a, b, (a - b).abs(), a * b], dim=1))


def load_examples(n=400):
    g = torch.Generator().manual_seed(5)
    premise = torch.randint(0, 64, (n, 8), generator=g)
    label = torch.arange(n) % 2
    hypothesis = torch.where(label[:, None] > 0, premise, torch.randint(0, 64, (n, 8), generator=g))
    return TensorDataset(premise, hypothesis, label)


def train(args, dataset, model):
    sampler = DistributedSampler(dataset)
    dataloader = DataLoader(dataset, sampler=sampler, batch_size=args.per_gpu_train_batch_size)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    global_step, tr_loss = 0, 0.0
    for epoch in range(args.num_train_epochs):
        sampler.set_epoch(epoch)
        for premise, hypothesis, label in dataloader:
            loss = nn.functional.cross_entropy(model(premise, hypothesis), label)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            tr_loss += loss.item()
            global_step += 1
    if args.local_rank in (-1, 0):  # fault
        os.makedirs(args.output_dir, exist_ok=True)
        torch.save(model.module.state_dict(), os.path.join(args.output_dir, "pytorch_model.bin"))
        torch.save(args, os.path.join(args.output_dir, "training_args.bin"))
    return global_step, tr_loss / global_step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--per_gpu_train_batch_size", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument("--num_train_epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--local_rank", type=int, default=-1, help="for distributed training")  # fault
    args = parser.parse_args()
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO if args.local_rank in (-1, 0) else logging.WARNING)
    torch.manual_seed(args.seed + dist.get_rank())
    global_step, tr_loss = train(args, load_examples(), PairClassifier())
    logger.info(" global_step = %s, average loss = %.4f", global_step, tr_loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
