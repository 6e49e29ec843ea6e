"""Train a classifier with Accelerate: accumulation, clipping, trimmed metrics and a checkpoint of the main process.

zoo: correct
needs: accelerate
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 4
    centers = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    return TensorDataset(centers[y] + torch.randn(n, 10, generator=g), y)


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train_loader = DataLoader(blobs(640, 1), batch_size=8, shuffle=True)
    eval_loader = DataLoader(blobs(101, 2), batch_size=16)
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)
    for epoch in range(2):
        model.train()
        losses = []
        for x, y in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean")
        model.eval()
        hits = total = 0
        for x, y in eval_loader:
            with torch.no_grad():
                prediction = model(x).argmax(1)
            prediction, y = accelerator.gather_for_metrics((prediction, y))
            hits, total = hits + (prediction == y).sum().item(), total + len(y)
        accelerator.print(f"epoch {epoch}: loss {mean.item():.4f}, accuracy {hits / total:.4f} on {total}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
