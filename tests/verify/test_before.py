"""NEW on ranks is compared with OLD on one device: by recorded facts, and by scripts that are run."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.parity import (
    Before,
    Change,
    ParityResult,
    ParityStep,
    SavedFile,
    TrainingLoader,
    rank_folder,
)
from paceline.records.place import Place
from paceline.verify.before import Training, compare_scripts, judge_before
from paceline.verify.script_parity import Question, verify_script

PASSED = ParityResult(verdict="pass", reason="", command=["new.py"], world=2)


def training(folder: Path, world: int, **facts: Any) -> Training:
    """A recorded run: two steps, a loader, and a file that rank 0 saved."""
    facts = {
        "drops_last": False,
        "samples": 16 // world,
        "rates": [0.1, 0.05],
        "pass_": 100 // world,
        "shuffles": True,
        "names": ["model/weight"],
    } | facts
    for rank in range(world):
        own = rank_folder(folder, rank)
        (own / "loaders").mkdir(parents=True)
        steps = [
            ParityStep(step=number, optimizer=0, lr=[rate], backwards=1, samples=facts["samples"])
            for number, rate in enumerate(facts["rates"], 1)
        ]
        (own / "steps.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, steps)))
        loader = TrainingLoader(
            batches=9,
            samples=facts["pass_"],
            drops_last=facts["drops_last"],
            shuffles=facts["shuffles"],
            place=Place(path="new.py", line=7),
        )
        (own / "loaders" / "0.json").write_bytes(msgspec.json.encode(loader))
    saved = SavedFile(step=1, path=f"/somewhere/{world}/model.pt", names=facts["names"])
    (rank_folder(folder, 0) / "saved.jsonl").write_bytes(msgspec.json.encode(saved))
    return Training(folder, world)


def changes(tmp_path: Path, **facts: Any) -> list[Change]:
    """What NEW on two ranks does in another way than OLD, where its facts are these."""
    old = training(tmp_path / "old", 1)
    new = training(tmp_path / "new", 2, **facts)
    return compare_scripts(Before(command=["old.py"], script_sha256=""), new, old, old, None).changes


def test_equal_facts_are_no_change(tmp_path: Path) -> None:
    """Half of the samples on each of two ranks."""
    assert changes(tmp_path) == []


@pytest.mark.parametrize(
    ("facts", "verdict", "text", "faults"),
    [
        ({"rates": [0.2, 0.1]}, "fail", "the learning rate of NEW is 0.2, that of OLD 0.1: 2 times", ["F32"]),
        ({"rates": [0.1, 0.025]}, "fail", "at step 2 the learning rate of NEW is 0.025, that of OLD 0.05", ["F33"]),
        ({"samples": 16}, "inconclusive", "takes 32 samples on 2 ranks, one of OLD 16", ["F16"]),
        ({"pass_": 48}, "fail", "has 96 samples on 2 ranks, one of OLD 100: NEW drops samples", ["F15"]),
        ({"pass_": 100}, "fail", "has 200 samples on 2 ranks, one of OLD 100: NEW repeats samples", ["F01"]),
        ({"shuffles": False}, "fail", "OLD shuffles its training data, NEW does not", ["F05"]),
        ({"names": ["model/module.weight"]}, "fail", "saved from the wrapped model", ["F96"]),
        ({"names": ["ema/weight"]}, "fail", "holds other tensors than OLD's: no model/weight, ema/weight", []),
        ({"names": ["model/weight", "ema/weight"]}, "inconclusive", "holds other tensors than OLD's: ema/weight", []),
    ],
    ids=[
        "rate",
        "schedule",
        "global batch",
        "dropped",
        "repeated",
        "order",
        "wrapped",
        "other tensors",
        "more tensors",
    ],
)
def test_a_change_is_named(tmp_path: Path, facts: dict[str, Any], verdict: str, text: str, faults: list[str]) -> None:
    """With its verdict and the id of its fault."""
    found = changes(tmp_path, **facts)

    assert len(found) == 1
    assert (found[0].verdict, found[0].faults) == (verdict, faults)
    assert text in found[0].text


def test_a_sampler_may_pad_by_less_than_the_ranks(tmp_path: Path) -> None:
    """51 on each of two ranks for 101 samples, as DistributedSampler does."""
    old = training(tmp_path / "old", 1, pass_=101)
    new = training(tmp_path / "new", 2, pass_=51)

    assert compare_scripts(Before(command=[], script_sha256=""), new, old, old, None).changes == []


def test_padding_may_fill_a_batch_that_old_drops(tmp_path: Path) -> None:
    """127 samples make 7 batches of 16 in one process, and 8 of 8 on each of two ranks."""
    old = training(tmp_path / "old", 1, pass_=112, drops_last=True)
    new = training(tmp_path / "new", 2, pass_=64, drops_last=True)
    keeps = training(tmp_path / "keeps", 2, pass_=63)
    before = Before(command=[], script_sha256="")

    assert compare_scripts(before, new, old, old, None).changes == []
    change, *_ = compare_scripts(before, keeps, old, old, None).changes
    assert (change.verdict, change.faults) == ("fail", [])
    assert change.text.endswith("NEW keeps the last batch")


def test_learning_rates_may_depend_on_results(tmp_path: Path) -> None:
    """As with ReduceLROnPlateau: OLD has the same ones where it is given the same batches."""
    old = training(tmp_path / "old", 1)
    replay = training(tmp_path / "replay", 1, rates=[0.1, 0.1])
    new = training(tmp_path / "new", 2, rates=[0.1, 0.1])

    assert compare_scripts(Before(command=[], script_sha256=""), new, old, replay, None).changes == []


def test_learning_rates_of_other_batches_are_not_compared(tmp_path: Path) -> None:
    """A larger global batch with a larger rate may be meant: it is measured, not proven."""
    found = changes(tmp_path, samples=16, rates=[0.2, 0.1])

    assert [(each.verdict, each.faults) for each in found] == [("inconclusive", ["F16"])]


def test_a_certain_change_decides_over_an_open_one() -> None:
    """And a difference of states proves nothing where the replay has notes."""
    states = Change(verdict="fail", what="states", text="differs")
    certain = Change(verdict="fail", text="no shuffle", faults=["F05"])
    before = Before(command=[], script_sha256="", changes=[Change(verdict="inconclusive", text="batch"), certain])

    assert judge_before(PASSED, before).reason == "no shuffle"
    noted = judge_before(PASSED, Before(command=[], script_sha256="", changes=[states]), ["other random numbers"])
    assert (noted.verdict, noted.reason) == ("inconclusive", "other random numbers")


OLD = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(161, 6, generator=generator)
    data, held_out = TensorDataset(x[:120], x[:120].sum(1)), TensorDataset(x[120:], x[120:].sum(1))
    loader = DataLoader(data, batch_size=20, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses = [(model(x).squeeze(1) - y).square() for x, y in DataLoader(held_out, batch_size=20)]
    print(f"test loss {torch.cat(losses).mean().item():.5f}")
    torch.save(model.state_dict(), "model.pt")
"""
NEW = """
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(161, 6, generator=generator)
    data, held_out = TensorDataset(x[:120], x[:120].sum(1)), TensorDataset(x[120:], x[120:].sum(1))
    loader = DataLoader(data, batch_size=20 // world, sampler=DistributedSampler(data))
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    shard = Subset(held_out, range(rank, len(held_out), world))
    with torch.no_grad():
        losses = torch.cat([(model(x).squeeze(1) - y).square() for x, y in DataLoader(shard, batch_size=20)])
    total = torch.tensor([losses.sum().item(), len(losses)], dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        print(f"test loss {(total[0] / total[1]).item():.5f}")
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()
"""


def verify(tmp_path: Path, *edits: tuple[str, str]) -> ParityResult:
    """Verify NEW with some of its text changed."""
    new = textwrap.dedent(NEW)
    for found, instead in edits:
        assert found in new
        new = new.replace(found, instead)
    jobs = []
    for name, text in (("old.py", textwrap.dedent(OLD)), ("new.py", new)):
        (tmp_path / name).write_text(text)
        jobs.append(ScriptJob(script=str(tmp_path / name), arguments=[], directory=str(tmp_path)))
    return verify_script(Question(jobs[1], 2, 4, tmp_path / "runs", patience_s=60, audit=False, before=jobs[0]))


def test_a_right_conversion_passes(tmp_path: Path) -> None:
    """States, evaluation, learning rates and data agree with OLD, far below the tolerance."""
    result = verify(tmp_path)

    assert (result.verdict, result.reason) == (
        "pass",
        "NEW on 2 ranks computes what OLD does on one device, for 4 steps",
    )
    assert result.before is not None
    assert result.before.compared is not None
    assert result.before.compared.worst < 1e-12
    assert result.before.samples_per_step == [20, 20]
    assert result.before.evaluation is not None
    assert result.before.evaluation.equal_numbers == 1
    assert not (tmp_path / "model.pt").exists()


def test_a_scaled_learning_rate_fails(tmp_path: Path) -> None:
    """The global batch is that of OLD."""
    result = verify(tmp_path, ("lr=0.1", "lr=0.1 * world"))

    assert result.verdict == "fail"
    assert result.faults == ["F32"]
    assert "that of OLD 0.1: 2 times as large" in result.reason


def test_a_padded_evaluation_fails(tmp_path: Path) -> None:
    """41 samples on two ranks make 42."""
    result = verify(
        tmp_path,
        (
            "DataLoader(shard, batch_size=20)",
            "DataLoader(held_out, sampler=DistributedSampler(held_out, shuffle=False))",
        ),
    )

    assert result.verdict == "fail"
    assert result.faults == ["F70"]
    assert "42 samples on 2 ranks and 41 in" in result.reason
