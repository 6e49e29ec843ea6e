"""What learners get: it can be started as the task says, and its numbers are the rubric's."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.run import get_args_parser

from paceline_course.assess.kit import kit_folder, signals
from paceline_course.assess.rubric import load_rubric

REPOSITORY = Path(__file__).parents[3]
TASK = (kit_folder() / "TASK.md").read_text()
FLAGS = sorted(set(re.findall(r"add_argument\(\"(--[a-z0-9-]+)\"", (kit_folder() / "train.py").read_text())))


@pytest.mark.parametrize("line", [each.strip() for each in TASK.splitlines() if each.strip().startswith("torchrun ")])
def test_torchrun_takes_the_commands_of_the_task_as_they_stand(line: str) -> None:
    """Its parser also reads flags behind the script, and refuses those that begin like two of its own."""
    words = shlex.split(line)[1:]
    found = get_args_parser().parse_args(words)
    assert found.training_script.endswith(".py")
    assert found.training_script_args == words[words.index(found.training_script) + 1 :]


@pytest.mark.parametrize("flag", FLAGS)
def test_no_flag_of_the_program_is_taken_for_one_of_torchruns(flag: str) -> None:
    """All of them, so also those that the task does not show."""
    assert len(FLAGS) > 12
    found = get_args_parser().parse_args(["--standalone", "train.py", flag, "3"])
    assert found.training_script_args == [flag, "3"]


def test_the_given_configuration_can_be_graded() -> None:
    """Each run has what the grader asks for, and the chosen one is there."""
    config = tomllib.loads((kit_folder() / "config.toml").read_text())
    assert config["chosen"] in {run["name"] for run in config["runs"]}
    assert all({"name", "workers", "batch", "epochs"} <= set(run) for run in config["runs"])


def test_signals_are_the_same_however_they_are_read() -> None:
    """One by one, many at once, by a list, a range or a tensor; none is a batch, too."""
    data = signals().Signals(20, 5)
    together, labels = data.batch(range(20))
    for index in (0, 7, 19):
        one, label = data[index]
        assert torch.equal(one, together[index])
        assert label == labels[index]
    assert torch.equal(data.batch(torch.tensor([3, 1]))[0], together[[3, 1]])
    assert data.batch([])[0].shape == (0, 1, 64)


def test_a_seed_draws_its_own_signals_and_its_own_names_for_the_shapes() -> None:
    """Seeds a million apart agree on the names, so that what was learned on one holds for the other."""
    kit = signals()
    assert not torch.equal(kit.Signals(50, 1).batch(range(50))[0], kit.Signals(50, 2).batch(range(50))[0])

    def means(seed: int) -> np.ndarray:
        """How strong the signals of each label are at the edge, which tells a burst from the others."""
        inputs, labels = kit.Signals(4000, seed).batch(range(4000))
        energy = inputs[:, 0, :4].square().mean(dim=1)
        return np.array([float(energy[labels == label].mean()) for label in range(8)])

    for seed in (1, 2, 3):
        assert np.argmin(means(seed)) == np.argmin(means(seed + 1_000_000)) == np.argmin(means(seed + 2_000_000))
    assert len({int(np.argmin(means(seed))) for seed in range(8)}) > 2


@pytest.mark.parametrize("samples", [1, 7, 64])
def test_the_order_has_every_sample_once_and_another_one_each_epoch(samples: int) -> None:
    """And is that of torch's own DistributedSampler with the same seed, as far as that goes."""
    orders = [signals().order(samples, 3, epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(samples)) for order in orders)
    assert samples < 3 or orders[0] != orders[1]
    sampler = torch.utils.data.DistributedSampler(range(samples), num_replicas=1, rank=0, seed=3)
    sampler.set_epoch(2)
    assert list(sampler) == orders[2]


def test_models_of_a_seed_are_equal_and_leave_the_random_state_alone() -> None:
    """In both types; the frozen layer is the only one that is not trained, the tied one has one weight less."""
    kit = signals()
    before = torch.get_rng_state()
    one, two = kit.make_model("norm", 4), kit.make_model("norm", 4)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    frozen = kit.make_model("frozen", 4)
    assert [name for name, p in frozen.named_parameters() if not p.requires_grad] == ["first.weight", "first.bias"]
    assert len(list(kit.make_model("tied").parameters())) == len(list(kit.make_model("plain").parameters())) - 1
    with pytest.raises(ValueError, match="variant is 'other'"):
        kit.make_model("other")


def test_the_target_rests_on_the_measurement_that_is_on_record() -> None:
    """20 seeds of one device; the learner's baseline says the same."""
    (path,) = (REPOSITORY / "course/records").glob("*_assessment_spread/record.json")
    record = json.loads(path.read_bytes())
    numbers = load_rubric().accuracy
    assert (numbers.mean, numbers.deviation) == (record["small"]["mean"], record["small"]["deviation"])
    assert numbers.seeds == len(record["small"]["held"])
    assert numbers.mean == pytest.approx(np.mean(record["small"]["held"]), abs=1e-4)
    assert numbers.deviation == pytest.approx(np.std(record["small"]["held"], ddof=1), abs=1e-4)
    report = (kit_folder() / "baseline" / "report.md").read_text()
    assert f"has to hold {numbers.target:.3f}" in report
    assert record["large"]["mean"] + 3 * record["large"]["deviation"] < numbers.target  # doing nothing does not pass
