"""Train the classifier of signals on any number of processes.

Built from small classes: what is to be done (Settings), who does it (Processes), which samples (ShareOfBatches), how
(Trainer), and what is kept of it (Journal).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Sampler


@dataclass
class Settings:
    samples: int = 8192
    eval_samples: int = 2003
    data_seed: int = 1
    variant: str = "plain"
    seed: int = 0
    epochs: int = 6
    batch: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    float64: bool = False
    stop_at: float | None = None
    seconds: float | None = None
    config: Path | None = None
    name: str | None = None
    resume: bool = False
    out: Path = Path("result")
    # Beyond what the task asks for.
    warmup: float = 0.0
    cosine: bool = False
    weight_decay: float = 0.0

    @classmethod
    def read(cls) -> Settings:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        for field in fields(cls):
            flag = "--" + field.name.replace("_", "-")
            kind = field.type.split(" ")[0]
            if kind == "bool":
                parser.add_argument(flag, action="store_true", default=argparse.SUPPRESS)
            else:
                convert = {"int": int, "float": float, "str": str, "Path": Path}[kind]
                choices = VARIANTS if field.name == "variant" else None
                parser.add_argument(flag, type=convert, choices=choices, default=argparse.SUPPRESS)
        said = vars(parser.parse_args())
        from_file = {}
        if "config" in said:
            runs = tomllib.loads(said["config"].read_text(encoding="utf-8"))["runs"]
            known = {field.name for field in fields(cls)}
            run = next(run for run in runs if run["name"] == said["name"])
            from_file = {key: value for key, value in run.items() if key in known}
        return cls(**{**from_file, **said})


class Processes:
    """The group, as a context manager. A lone process is a group of one."""

    def __enter__(self) -> Processes:
        if "RANK" in os.environ:
            dist.init_process_group(backend="gloo", init_method="env://")
        else:
            dist.init_process_group(backend="gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        return self

    def __exit__(self, *_: object) -> None:
        dist.destroy_process_group()

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total(self, values: list[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
        return tensor.tolist()


class ShareOfBatches(Sampler):
    """For each batch of the epoch, the indices of it that this process takes; sometimes none."""

    def __init__(self, settings: Settings, processes: Processes) -> None:
        self.settings, self.processes = settings, processes
        self.epoch = 0

    def __len__(self) -> int:
        return math.ceil(self.settings.samples / self.settings.batch)

    def sizes(self) -> list[int]:
        """Of the global batches."""
        full, rest = divmod(self.settings.samples, self.settings.batch)
        return [self.settings.batch] * full + ([rest] if rest else [])

    def __iter__(self) -> Iterator[list[int]]:
        for batch in order(self.settings.samples, self.settings.seed, self.epoch).split(self.settings.batch):
            yield batch.tensor_split(self.processes.world)[self.processes.rank].tolist()


class Lookup(torch.utils.data.Dataset):
    """The whole batch at once: DataLoader calls __getitems__ with all indices of a batch."""

    def __init__(self, data: Signals) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.data.batch(indices)


class Journal:
    """Log, weights and checkpoint in --out. Everybody may read, the first process writes."""

    COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")

    def __init__(self, folder: Path, writes: bool) -> None:
        self.folder, self.writes = folder, writes
        self.rows: list[list[float]] = []
        if writes:
            folder.mkdir(parents=True, exist_ok=True)

    def last(self) -> dict | None:
        path = self.folder / "checkpoint.pt"
        return torch.load(path, weights_only=True) if path.exists() else None

    def keep(self, row: list[float], weights: dict, rest: dict) -> None:
        self.rows.append(row)
        if not self.writes:
            return
        with (self.folder / "log.new").open("w", newline="") as file:
            csv.writer(file).writerows([self.COLUMNS, *self.rows])
        (self.folder / "log.new").replace(self.folder / "log.csv")
        self._save(weights, f"epoch-{row[0]}.pt")
        self._save({"rows": self.rows, "model": weights, **rest}, "checkpoint.pt")

    def _save(self, content: dict, name: str) -> None:
        torch.save(content, self.folder / f"{name}.new")
        (self.folder / f"{name}.new").replace(self.folder / name)


class Trainer:
    def __init__(self, settings: Settings, processes: Processes, begun: float) -> None:
        self.settings, self.processes, self.begun = settings, processes, begun
        self.journal = Journal(settings.out, writes=processes.first)
        self.sampler = ShareOfBatches(settings, processes)
        train = Signals(settings.samples, settings.data_seed)
        self.loader = DataLoader(Lookup(train), batch_sampler=self.sampler, collate_fn=lambda batch: batch)
        test = Signals(settings.eval_samples, settings.data_seed + 1_000_000)
        own = range(processes.rank, settings.eval_samples, processes.world)
        lots = [list(own[k : k + 256]) for k in range(0, len(own), 256)]
        self.test_loader = DataLoader(Lookup(test), batch_sampler=lots, collate_fn=lambda batch: batch)

        self.network = synchronised(make_model(settings.variant, settings.seed))
        self.optimizer = torch.optim.SGD(
            [weight for weight in self.network.parameters() if weight.requires_grad],
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.scheduler = LambdaLR(self.optimizer, self.rate)
        self.streak = 0
        if settings.resume and (held := self.journal.last()) is not None:
            self.network.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.scheduler.load_state_dict(held["scheduler"])
            self.journal.rows, self.streak = held["rows"], held["streak"]
        self.model = DistributedDataParallel(self.network)
        self.settle()

    def settle(self) -> None:
        """Let DDP find its order of gradients before the first step; so all steps add in the same order."""
        self.model.eval()
        self.model(torch.zeros(1, 1, 64)).mean().backward()
        self.optimizer.zero_grad()

    def rate(self, step: int) -> float:
        """As a part of --lr."""
        total = self.settings.epochs * len(self.sampler)
        warm = round(self.settings.warmup * total)
        if step < warm:
            return (step + 1) / warm
        if not self.settings.cosine:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))

    def epoch(self, number: int) -> tuple[float, float]:
        """Sum of the losses of my samples, and the rate of the last step."""
        self.model.train()
        self.sampler.epoch = number
        loss_sum, rate = 0.0, 0.0
        for size, (signals, labels) in zip(self.sampler.sizes(), self.loader, strict=True):
            rate = self.scheduler.get_last_lr()[0]
            loss = nn.functional.cross_entropy(self.model(signals), labels, reduction="sum")
            self.optimizer.zero_grad()
            (loss / size * self.processes.world).backward()
            self.optimizer.step()
            self.scheduler.step()
            loss_sum += loss.item()
        return loss_sum, rate

    @torch.no_grad()
    def test(self) -> tuple[int, int]:
        self.network.eval()
        right = counted = 0
        for signals, labels in self.test_loader:
            right += int((self.network(signals).argmax(1) == labels).sum())
            counted += len(labels)
        return right, counted

    def fit(self) -> None:
        for number in range(len(self.journal.rows), self.settings.epochs):
            if self.streak >= 2:
                return
            began = time.monotonic()
            loss, rate = self.epoch(number)
            right, counted = self.test()
            late = self.settings.seconds is not None and time.monotonic() - self.begun > self.settings.seconds
            loss, right, counted, late = self.processes.total([loss, right, counted, float(late)])
            enough = self.settings.stop_at is not None and right >= self.settings.stop_at * counted
            self.streak = (self.streak + 1) * enough
            samples, steps = (number + 1) * self.settings.samples, (number + 1) * len(self.sampler)
            row = [number, samples, steps, rate, loss / self.settings.samples, int(right), int(counted)]
            rest = {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}
            row.append(time.monotonic() - began)
            self.journal.keep(row, self.network.state_dict(), rest | {"streak": self.streak})
            if self.processes.first:
                print(dict(zip(Journal.COLUMNS, row, strict=True)), flush=True)
            if late:
                return


def main() -> None:
    begun = time.monotonic()
    settings = Settings.read()
    torch.set_num_threads(1)
    if settings.float64:
        torch.set_default_dtype(torch.float64)
    with Processes() as processes:
        Trainer(settings, processes, begun).fit()


if __name__ == "__main__":
    main()
