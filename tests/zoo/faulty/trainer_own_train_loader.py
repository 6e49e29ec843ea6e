"""Train a classifier with the Trainer of transformers and a data loader that draws each class equally often.

zoo: faulty
faults: F02, F01
silent: yes
needs: transformers
launcher: real
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput


class BlobConfig(PreTrainedConfig):
    model_type = "blobs"

    def __init__(self, features=10, hidden=32, classes=4, **kwargs):
        self.features, self.hidden, self.classes = features, hidden, classes
        super().__init__(**kwargs)


class BlobClassifier(PreTrainedModel):
    config_class = BlobConfig

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.Sequential(
            nn.Linear(config.features, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.classes)
        )
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.layers(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    centers = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.multinomial(torch.tensor([0.6, 0.2, 0.15, 0.05]), n, replacement=True, generator=g)
    x = centers[labels] + torch.randn(n, 10, generator=g)
    return [{"x": row, "labels": label} for row, label in zip(x, labels, strict=True)]


class BalancedTrainer(Trainer):
    def get_train_dataloader(self):
        labels = torch.stack([row["labels"] for row in self.train_dataset])
        weights = 1 / torch.bincount(labels)[labels]
        sampler = WeightedRandomSampler(weights, len(labels))
        return DataLoader(self.train_dataset, self.args.train_batch_size, sampler=sampler)  # fault


def main():
    args = TrainingArguments(
        output_dir="blobs", num_train_epochs=3, per_device_train_batch_size=16, learning_rate=5e-3, save_strategy="no",
        eval_strategy="epoch", logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = BalancedTrainer(
        model=BlobClassifier(BlobConfig()), args=args, train_dataset=blobs(480, 1), eval_dataset=blobs(96, 2)
    )
    trainer.train()


if __name__ == "__main__":
    main()
