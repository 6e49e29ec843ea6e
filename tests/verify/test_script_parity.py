"""A script on two ranks is compared with one process, on scripts that are right and on scripts that are not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.parity import ParityResult
from paceline.records.schema import Finding
from paceline.verify.script_parity import Question, verify_script

SCRIPT = """
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    world = dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(240, 6, generator=generator), torch.randint(0, 3, (240,), generator=generator))
    loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data))
    model = DDP(nn.Sequential(nn.Linear(6, 16), {layer}, nn.Linear(16, 3)))
    optimizer = torch.optim.{optimizer}
    for x, y in loader:
        loss = nn.functional.cross_entropy(model{inner}(x), y{reduction})
        optimizer.zero_grad()
        {loss}.backward()
        optimizer.step()
    print("done")
    dist.destroy_process_group()
"""
RIGHT = {
    "layer": "nn.ReLU()",
    "optimizer": "SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "inner": "",
    "reduction": "",
    "loss": "loss",
}


def verify(tmp_path: Path, *, world: int = 2, text: str | None = None, **changes: str) -> ParityResult:
    """Verify the script with some of its parts changed."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text or SCRIPT.format(**{**RIGHT, **changes})))
    job = ScriptJob(script=str(script), arguments=[], directory=str(tmp_path))
    return verify_script(Question(job, world, 6, tmp_path / "runs", patience_s=60, audit=False))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "AdamW(model.parameters(), lr=0.01)"},
        {"layer": "nn.Dropout(0.5)"},
        {"layer": "nn.BatchNorm1d(16)"},
    ],
    ids=["plain", "adamw", "dropout", "batch norm"],
)
def test_a_right_script_passes(tmp_path: Path, changes: dict[str, str]) -> None:
    """In float64, far below the tolerance; dropout masks belong to the same samples in both runs."""
    result = verify(tmp_path, **changes)

    assert result.verdict == "pass", result.reason
    assert result.compared is not None
    assert (result.compared.steps, result.compared.dtype) == (6, "float64")
    assert result.compared.worst < 1e-12
    assert result.first_divergence is None
    assert len(result.tensors) >= 8


def test_three_ranks_pass(tmp_path: Path) -> None:
    """240 samples make whole batches on each."""
    assert verify(tmp_path, world=3).verdict == "pass"


@pytest.mark.parametrize("optimizer", ["SGD(model.parameters(), lr=0.1)", "Adam(model.parameters(), lr=0.01)"])
def test_a_summed_loss_fails_by_the_world_size(tmp_path: Path, optimizer: str) -> None:
    """Under Adam as well, whose steps do not depend on the length of the gradient."""
    result = verify(tmp_path, optimizer=optimizer, reduction=', reduction="sum"')

    assert result.verdict == "fail"
    assert "1/2 of those of one process" in result.reason
    assert result.faults == ["F23"]


def test_a_loss_times_the_world_size_fails(tmp_path: Path) -> None:
    """DDP divides by it once, so a mean loss must not be multiplied."""
    result = verify(tmp_path, loss="(loss * world)")

    assert (result.verdict, result.faults) == ("fail", ["F24"])
    assert result.first_divergence is not None
    assert result.first_divergence.step == 1


def test_a_mean_over_the_items_of_a_rank_fails_with_their_shares(tmp_path: Path) -> None:
    """Ranks have different numbers of items that count. Clipping the result changes nothing about that."""
    text = textwrap.dedent(SCRIPT.format(**RIGHT)).replace("y)", "torch.where(x[:, 0] > 0.3, y, -100))")
    text = text.replace("optimizer.step()", "nn.utils.clip_grad_norm_(model.parameters(), 0.01); optimizer.step()")
    result = verify(tmp_path, text=text)

    assert (result.verdict, result.faults) == ("fail", ["F22"])
    assert "all count alike, though they have shares of" in result.reason


def test_a_loss_over_pairs_of_samples_fails_as_one_that_does_not_fall_apart(tmp_path: Path) -> None:
    """Pairs across ranks are missing."""
    text = textwrap.dedent(SCRIPT.format(**RIGHT)).replace(
        "nn.functional.cross_entropy(model(x), y)", "torch.pdist(model(x)).mean()"
    )
    result = verify(tmp_path, text=text)

    assert (result.verdict, result.faults) == ("fail", ["F31"])


def test_steps_before_the_model_is_wrapped_do_not_count(tmp_path: Path) -> None:
    """Rank 0 pretrains for longer than the steps that are compared, and so does one process."""
    pretraining = """
    plain = nn.Linear(6, 3)
    if dist.get_rank() == 0:
        first = torch.optim.SGD(plain.parameters(), lr=0.1)
        for _ in range(9):
            first.zero_grad()
            plain(torch.randn(4, 6)).sum().backward()
            first.step()
    """
    text = textwrap.dedent(SCRIPT.format(**RIGHT))
    text = text.replace("model = DDP", f"{textwrap.dedent(pretraining)}\nmodel = DDP", 1)
    result = verify(tmp_path, text=text)

    assert result.verdict == "pass", result.reason
    assert result.compared is not None
    assert result.compared.steps == 6


def test_autocast_is_tried_in_its_own_precision_as_well(tmp_path: Path) -> None:
    """The reason and the record say so."""
    text = textwrap.dedent(SCRIPT.format(**RIGHT)).replace("model(x)", "torch.autocast('cpu')(model)(x).float()")
    result = verify(tmp_path, text=text)

    assert result.verdict == "pass", result.reason
    assert result.compared is not None
    assert result.compared.dtype == "float64"
    assert result.own_precision is not None
    assert (result.own_precision.dtype, result.own_precision.steps) == ("bfloat16", 5)
    assert 1e-5 < result.own_precision.gradients < result.own_precision.tolerance


def test_a_fault_that_vanishes_in_float64_fails_in_the_precision_of_the_script(tmp_path: Path) -> None:
    """Rank 1 alone finds an overflow, and skips its step."""
    skips = "finite = (loss.detach() * 1e5 * dist.get_rank()).half().isfinite()\n    if finite: optimizer.step()"
    text = textwrap.dedent(SCRIPT.format(**RIGHT)).replace("optimizer.step()", skips)
    result = verify(tmp_path, text=text)

    assert result.verdict == "fail"
    assert result.reason == "in float16 ranks take 5, 0 steps, though they take as many in float64"


def test_an_error_of_an_audit_fails_what_the_comparison_leaves_open(tmp_path: Path) -> None:
    """Its findings may come from a run that was audited before."""
    script = tmp_path / "train.py"
    script.write_text("import torch")
    job = ScriptJob(script=str(script), arguments=[], directory=str(tmp_path))
    finding = Finding(
        code="DP122", name="identical-batches", severity="error", message="equal batches", advice="", faults=["F02"]
    )
    result = verify_script(Question(job, 2, 6, tmp_path / "runs", patience_s=60, findings=[finding]))

    assert (result.verdict, result.faults) == ("fail", ["F02"])
    assert result.reason == "no optimizer of torch took a step; an audit found an error: equal batches"


def test_a_forward_pass_without_the_wrapper_fails_between_ranks(tmp_path: Path) -> None:
    """The line is that of the optimizer's step."""
    result = verify(tmp_path, inner=".module")

    assert result.verdict == "fail"
    assert result.first_divergence is not None
    assert result.first_divergence.against == "rank 0"
    assert result.first_divergence.path == str(tmp_path / "train.py")


def test_a_script_that_fails_on_ranks_alone_fails_with_its_error(tmp_path: Path) -> None:
    """The last line of the traceback."""
    result = verify(tmp_path, text="import os\nif os.environ['WORLD_SIZE'] != '1':\n    raise ValueError('no data')")

    assert result.verdict == "fail"
    assert result.reason == "the script fails on 2 ranks, and not in one process: ValueError: no data"


def test_a_script_that_fails_in_one_process_as_well_is_inconclusive(tmp_path: Path) -> None:
    """Its data may be missing, which says nothing about ranks."""
    result = verify(tmp_path, text="raise ValueError('no data')")

    assert result.verdict == "inconclusive"
    assert result.reason == "the script fails in one process as well: ValueError: no data"


def test_a_script_without_training_is_inconclusive(tmp_path: Path) -> None:
    """Nothing was compared, so nothing passed."""
    result = verify(tmp_path, text="import torch")

    assert (result.verdict, result.reason) == ("inconclusive", "no optimizer of torch took a step")
    assert result.compared is None


def test_other_numbers_of_steps_are_inconclusive(tmp_path: Path) -> None:
    """What agrees so far says nothing about the rest."""
    text = (
        SCRIPT.format(**RIGHT)
        .replace("        optimizer.step()\n", "        optimizer.step()\n        {}\n")
        .format("if world == 1: break")
    )
    result = verify(tmp_path, text=text)

    assert (result.verdict, result.reason) == ("inconclusive", "one process takes 1 steps where the ranks take 6")


def test_files_of_the_script_stay_as_they_are(tmp_path: Path) -> None:
    """It may write a checkpoint, and each run finds what the first one found."""
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_text("old")
    writes = f"""
    from pathlib import Path
    path = Path({str(checkpoint)!r})
    assert path.read_text() == "old"
    dist.barrier()
    if dist.get_rank() == 0:
        path.write_text("new")
        Path("here.txt").write_text("new")
    """
    text = textwrap.dedent(SCRIPT.format(**RIGHT)).replace("world = ", textwrap.dedent(writes) + "\nworld = ", 1)
    result = verify(tmp_path, text=text)

    assert result.verdict == "pass", result.reason
    assert checkpoint.read_text() == "old"
    assert not (tmp_path / "here.txt").exists()


def test_the_line_that_needs_the_whole_batch_is_named(tmp_path: Path) -> None:
    """A product of all samples of a batch with each other is not the same in parts."""
    changes = {"loss": "(loss + (x @ x.T).square().mean() * sum(p.sum() for p in model.parameters()))"}
    result = verify(tmp_path, **changes)

    assert result.verdict == "fail"
    assert result.first_operation is not None
    assert result.first_operation.name == "mm.default"
    line = next(number for number, text in enumerate(script_lines(tmp_path), 1) if "x @ x.T" in text)
    assert result.first_operation.place is not None
    assert result.first_operation.place.line == line


def script_lines(tmp_path: Path) -> list[str]:
    """Of the script that was verified."""
    return (tmp_path / "train.py").read_text().splitlines()
