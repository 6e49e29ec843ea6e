"""Train a captioner that reads an image vector and writes a sentence, in the manner of a fine-tuning loop.

zoo: faulty
faults: F22
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import logging
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

logging.basicConfig(format="%(message)s", level=logging.INFO if os.environ.get("RANK") == "0" else logging.WARNING)
logger = logging.getLogger(__name__)

BOS, EOS, PAD = 0, 1, 2


def make_examples(n=288, words=30):
    g = torch.Generator().manual_seed(21)
    examples = []
    for _ in range(n):
        length = int(torch.randint(1, 10, (1,), generator=g))
        first = int(torch.randint(0, words, (1,), generator=g))
        caption = [BOS, *(3 + (first + k) % words for k in range(length)), EOS]
        image = F.one_hot(torch.tensor(first), words).float() + 0.1 * torch.randn(words, generator=g)
        examples.append((torch.cat([image, torch.tensor([length / 10])]), torch.tensor(caption)))
    return examples


def collate(examples):
    images, captions = zip(*examples)
    ids = nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=PAD)
    return {"image": torch.stack(images), "input_ids": ids[:, :-1], "labels": ids[:, 1:]}


class Captioner(nn.Module):
    def __init__(self, image=31, vocab=33, dim=48):
        super().__init__()
        self.project = nn.Linear(image, dim)
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, image, input_ids):
        hidden = torch.tanh(self.project(image)).unsqueeze(0)
        output, _ = self.rnn(self.embed(input_ids), hidden)
        return self.head(output)


def compute_loss(logits, labels):
    per_token = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    mask = (labels != PAD).float()
    return (per_token * mask).sum() / mask.sum()  # fault


def main():
    dist.init_process_group("gloo")
    examples = make_examples()
    sampler = DistributedSampler(examples)
    train_dataloader = DataLoader(examples, batch_size=12, sampler=sampler, collate_fn=collate)
    model = DDP(Captioner())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    num_epochs = 4
    lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, num_epochs * len(train_dataloader))
    global_step = 0
    for epoch in range(num_epochs):
        sampler.set_epoch(epoch)
        model.train()
        for batch in train_dataloader:
            logits = model(batch["image"], batch["input_ids"])
            loss = compute_loss(logits, batch["labels"])
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            global_step += 1
        logger.info("epoch %d, step %d, loss %.4f", epoch, global_step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
