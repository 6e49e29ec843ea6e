"""Pictures and experiments of lab 5. Experiments run the learner's files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Collective
from paceline_course.answer_process import load_file

WORK = Path("work")
TOY = Path(__file__).with_name("toy.py")


def toy_source() -> str:
    """The single-device script."""
    return TOY.read_text(encoding="utf-8")


def places(machines: int, devices: int) -> None:
    """Ranks, local ranks and devices of a job, drawn."""
    _, axis = plt.subplots(figsize=(9, 2.4), layout="constrained")
    width = devices + 0.4
    for machine in range(machines):
        left = machine * (width + 0.4)
        axis.add_patch(plt.Rectangle((left, 0), width, 1.6, facecolor="#edf2f7", edgecolor="#a0aec0"))
        axis.text(left + 0.1, 1.42, f"machine {machine}", fontsize=9, va="center")
        for local in range(devices):
            axis.add_patch(plt.Rectangle((left + 0.2 + local, 0.15), 0.9, 1.1, facecolor="#2b6cb0"))
            text = f"rank {machine * devices + local}\nlocal rank {local}\ncuda:{local}"
            axis.text(left + 0.65 + local, 0.7, text, color="white", ha="center", va="center", fontsize=9)
    axis.set(xlim=(-0.1, machines * (width + 0.4)), ylim=(-0.1, 1.7))
    axis.set_title(f"world size {machines * devices}", fontsize=10)
    axis.axis("off")
    plt.show()


def run_toy() -> None:
    """The single-device script, for three epochs."""
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, str(TOY), "--out", folder])


def two_agents() -> None:
    """The learner's script of step 6 under two torchrun agents with one process each, as on two machines."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    common = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    common += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "lab5"]
    with tempfile.TemporaryDirectory() as folder:
        script = [str(WORK / "L5_6.py"), "--out", str(Path(folder) / "result")]
        agents = [
            subprocess.Popen(
                [*common, *script],
                env=_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(2)
        ]
        for number, agent in enumerate(agents):
            said = agent.communicate(timeout=120)[0]
            lines = [line for line in said.splitlines() if line.startswith("epoch")]
            if agent.returncode:
                aborted = "terminate called without an active exception" in said
                lines += ["aborted at its exit, after its work was done (gloo does that at times)"] if aborted else []
                lines += [] if aborted else said.splitlines()[-6:]
            print(f"agent {number} ended with {agent.returncode}", *(f"  {line}" for line in lines), sep="\n")


def synchronised_steps() -> int:
    """Of 10 steps that call ddp.module(x), how many issue a collective in backward; counted on two ranks."""
    if GroupCollectives.missing():
        return 0
    return int(run_ranks(_past_the_wrapper, 2)[0])


def _past_the_wrapper() -> int:
    ddp = DistributedDataParallel(nn.Linear(4, 2))
    synchronised = 0
    for _ in range(10):
        sink = MemorySink()
        with Session(sink, [GroupCollectives()]):
            ddp.module(torch.randn(3, 4)).sum().backward()
        synchronised += any(call.by_backward for call in sink.of(Collective))
    return synchronised


def realistic(workers: Sequence[int] = (1, 2), width: float = 0.5, steps: int = 12) -> dict[int, float]:
    """Samples a second of a WideResNet-16 with the learner's functions of steps 3, 4, 5 and 7, by processes."""
    rates = {}
    for count in workers:
        began = time.monotonic()
        rate, right, counted, parameters = run_ranks(_train_realistic, count, str(WORK), width, steps, timeout_s=300)[0]
        rates[count] = rate
        print(
            f"{count} process{'es' if count > 1 else ''}: WideResNet with {parameters:,} parameters, "
            f"{rate:,.0f} samples a second, then {right} of {counted} right ({time.monotonic() - began:.0f} s)"
        )
    return rates


def _train_realistic(work: str, width: float, steps: int) -> tuple[float, int, int, int]:
    from paceline.tasks.models.wide_resnet import WideResNet

    answers = {number: load_file(Path(work) / f"L5_{number}.py", f"L5_{number}") for number in (3, 4, 5, 7)}
    torch.manual_seed(0)
    model = WideResNet(depth=16, width=width)
    ddp = answers[4].wrap(model, torch.device("cpu"))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    train_data, eval_data = _images(4096, "train"), _images(503, "t10k")
    loader, sampler = answers[3].make_loader(train_data, 64, seed=0)
    samples, began = 0, 0.0
    for step, (images, labels) in enumerate(answers[3].epoch_of(loader, sampler, 0)):
        if step == 2:  # the first steps are slower
            dist.barrier()
            samples, began = 0, time.monotonic()
        if step == steps + 2:
            break
        answers[4].train_step(ddp, optimizer, images, labels)
        samples += len(labels)
    rate = answers[7].throughput(samples, time.monotonic() - began)
    right, counted = answers[5].evaluate(model, eval_data, 100)
    return float(rate), int(right), int(counted), sum(p.numel() for p in model.parameters())


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Images and labels in memory."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], int(self.labels[index])


def _images(samples: int, split: str) -> Images:
    """Fashion-MNIST where it is on this machine, drawn shapes else."""
    from paceline.records.errors import PacelineError
    from paceline.tasks.data.idx import open_idx
    from paceline.tasks.data.obtain import obtain, whereabouts
    from paceline.tasks.shapes import draw

    try:
        if whereabouts("fashion-mnist").place is None:
            raise PacelineError("no Fashion-MNIST")
        raw = obtain("fashion-mnist").root / "FashionMNIST" / "raw"
        pixels = torch.from_numpy(open_idx(raw / f"{split}-images-idx3-ubyte")[:samples].copy())
        labels = torch.from_numpy(open_idx(raw / f"{split}-labels-idx1-ubyte")[:samples].copy())
        return Images((pixels.float() / 255 - 0.286).div(0.353).unsqueeze(1), labels.long())
    except PacelineError:
        images, drawn = draw(samples, seed=1 if split == "train" else 2)
        return Images(torch.from_numpy(images), torch.from_numpy(drawn))


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr[-2000:] if done.returncode else "", sep="")


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
