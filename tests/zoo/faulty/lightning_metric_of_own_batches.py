"""Train a classifier with the Lightning Trainer and keep the checkpoint with the best validation accuracy.

zoo: faulty
faults: F71, F84
silent: yes
needs: lightning
launcher: real
observable: no, the logged value is local to the framework
"""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def split(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


class Classifier(L.LightningModule):
    def __init__(self, hidden=32, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        accuracy = (self(x).argmax(1) == y).float().mean()
        self.log("val_acc", accuracy, on_epoch=True)  # fault

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(3)
    best = ModelCheckpoint(dirpath="checkpoints", monitor="val_acc", mode="max", save_top_k=1)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, callbacks=[best], logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(
        Classifier(),
        DataLoader(split(480, 0), batch_size=16, shuffle=True),
        DataLoader(split(96, 1), batch_size=16),
    )


if __name__ == "__main__":
    main()
