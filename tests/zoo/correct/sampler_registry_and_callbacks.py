"""Train a spectra classifier; the sampler comes from a registry and a callback passes the epoch on.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLERS = {"none": lambda dataset, **_: None, "distributed": DistributedSampler}


class Callback:
    def on_epoch_start(self, trainer, epoch):
        pass

    def on_epoch_end(self, trainer, epoch, logs):
        pass


class EpochForSampler(Callback):
    def on_epoch_start(self, trainer, epoch):
        hook = getattr(trainer.loader.sampler, "set_epoch", None)
        if hook is not None:
            hook(epoch)


class Progress(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        if trainer.rank == 0:
            print(f"epoch {epoch}:", ", ".join(f"{k} {v:.4f}" for k, v in logs.items()))


def build_loader(dataset, config):
    sampler = SAMPLERS[config["sampler"]["type"]](dataset, **config["sampler"].get("options", {}))
    options = dict(config["loader"], sampler=sampler, shuffle=sampler is None)
    return DataLoader(dataset, **options)


class Trainer:
    def __init__(self, model, loader, optimizer, callbacks):
        self.model, self.loader, self.optimizer, self.callbacks = model, loader, optimizer, callbacks
        self.rank = dist.get_rank()

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.call("on_epoch_start", epoch)
            totals = torch.zeros(3)
            for x, y in self.loader:
                logits = self.model(x)
                loss = nn.functional.cross_entropy(logits, y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                totals += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum().item(), len(y)])
            dist.all_reduce(totals)
            self.call("on_epoch_end", epoch, {"loss": totals[0] / totals[2], "accuracy": totals[1] / totals[2]})


def minerals(n=400):
    g = torch.Generator().manual_seed(25)
    y = torch.arange(n) % 8
    peaks = torch.rand(8, 40, generator=g) ** 4
    return TensorDataset(peaks[y] + 0.2 * torch.rand(n, 40, generator=g), y)


def main():
    dist.init_process_group("gloo")
    config = {
        "sampler": {"type": "distributed" if dist.get_world_size() > 1 else "none", "options": {"seed": 12}},
        "loader": {"batch_size": 20, "num_workers": 1},
    }
    model = DDP(nn.Sequential(nn.Linear(40, 48), nn.SiLU(), nn.Linear(48, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    trainer = Trainer(model, build_loader(minerals(), config), optimizer, [EpochForSampler(), Progress()])
    trainer.fit(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
