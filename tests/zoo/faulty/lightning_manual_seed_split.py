"""Train a regression with the Lightning Trainer on a random split of its data.

zoo: faulty
faults: F65
silent: yes
needs: lightning
launcher: real
"""

import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))

    def training_step(self, batch, _):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(6))
    torch.manual_seed(int(os.environ["RANK"]))
    train, val = random_split(TensorDataset(x, x[:, :1]), [320, 80])  # fault
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regression(), DataLoader(train, batch_size=16, shuffle=True), DataLoader(val, batch_size=16))
