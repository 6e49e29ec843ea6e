"""Train an autoencoder with the Lightning Trainer, validate each epoch and accumulate gradients.

zoo: correct
needs: lightning
launcher: real
"""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 6), nn.Linear(6, 16)

    def loss(self, batch):
        return nn.functional.mse_loss(self.decode(torch.tanh(self.encode(batch[0]))), batch[0])

    def training_step(self, batch, _):
        return self.loss(batch)

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    g = torch.Generator().manual_seed(6)
    train, val = TensorDataset(torch.randn(320, 16, generator=g)), TensorDataset(torch.randn(64, 16, generator=g))
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, accumulate_grad_batches=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(AutoEncoder(), DataLoader(train, batch_size=16, shuffle=True), DataLoader(val, batch_size=16))
