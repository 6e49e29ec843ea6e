"""Train a classifier with the Trainer of transformers, keep the best checkpoint and predict on test data.

zoo: correct
needs: transformers
launcher: real
"""

import torch
from torch import nn
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
        self.body = nn.Sequential(nn.Linear(config.features, config.hidden), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(config.hidden, config.classes)
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.head(self.body(x))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    centers = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(n) % 4
    x = centers[labels] + torch.randn(n, 10, generator=g)
    return [{"x": row, "labels": label} for row, label in zip(x, labels, strict=True)]


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    args = TrainingArguments(
        output_dir="blobs", num_train_epochs=3, per_device_train_batch_size=16, per_device_eval_batch_size=16,
        learning_rate=5e-3, eval_strategy="epoch", save_strategy="epoch", save_total_limit=1,
        load_best_model_at_end=True, metric_for_best_model="accuracy", logging_steps=5, report_to=[], use_cpu=True,
        disable_tqdm=True, seed=3,
    )  # fmt: skip
    model = BlobClassifier(BlobConfig())
    trainer = Trainer(
        model=model, args=args, train_dataset=blobs(480, 1), eval_dataset=blobs(101, 2), compute_metrics=accuracy
    )
    trainer.train()
    result = trainer.predict(blobs(77, 3))
    if trainer.is_world_process_zero():
        print(f"test accuracy {result.metrics['test_accuracy']:.4f} on {len(result.predictions)}")


if __name__ == "__main__":
    main()
