"""Train an autoencoder with Accelerate; the model computes its own loss.

zoo: faulty
faults: F37
silent: yes
needs: accelerate
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(nn.Module):
    def __init__(self, features=16, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, features))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def compute_loss(self, x):
        return nn.functional.mse_loss(self(x), x)


def main():
    accelerator = Accelerator(cpu=True)
    g = torch.Generator().manual_seed(8)
    dataset = TensorDataset(torch.randn(480, 4, generator=g) @ torch.randn(4, 16, generator=g))
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    model = AutoEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        model.train()
        losses = []
        for (x,) in loader:
            loss = accelerator.unwrap_model(model).compute_loss(x)  # fault
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean")
        accelerator.print(f"epoch {epoch}: reconstruction {mean.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
