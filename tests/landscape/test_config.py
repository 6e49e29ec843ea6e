"""Settings: what is measured when nothing is said, what is refused, what a resumed measurement may change."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.landscape.choices import MEASURES
from paceline.landscape.config import LandscapeConfig, check
from paceline.landscape.cost import Pace, cost, cost_lines, passes
from paceline.landscape.measures import TAKE
from paceline.landscape.session import Session
from paceline.records.errors import PacelineError
from paceline.tasks.names import is_run


def config(**settings: Any) -> LandscapeConfig:
    """Of the task digits."""
    return LandscapeConfig(target="digits", **settings)


def test_every_name_of_a_measure_has_one_function() -> None:
    """And a field of the result that it fills, and a cost."""
    from paceline.records.landscape import LandscapeResult

    assert TAKE.keys() == MEASURES.keys() == passes(config(), 3).keys()
    assert set(MEASURES) <= set(LandscapeResult.__struct_fields__)


@pytest.mark.parametrize(
    ("settings", "measures"),
    [
        ({}, ("surface", "eigenvalues", "trace")),
        ({"other": "B"}, ("interpolation",)),
        ({"measure": "sam, line"}, ("line", "sam")),
        ({"measure": "surface", "plane": "pca"}, ("trajectory", "surface")),
    ],
)
def test_what_is_measured(settings: dict[str, Any], measures: tuple[str, ...]) -> None:
    """Defaults with and without a second run; a plane of a path needs the path."""
    assert config(**settings).measures == measures


WRONG = [
    ({"measure": "sharpness"}, "surface"),
    ({"measure": ","}, "surface"),
    ({"measure": "interpolation"}, "--with RUN2"),
    ({"measure": "line", "other": "B"}, "--with RUN2"),
    ({"other": "B", "points": 2}, "legal: 3 <= value"),
    ({"other_checkpoint": 3}, "--with RUN2"),
    ({"plane": "pca", "measure": "line"}, "--measure surface"),
    ({"plane": "flat"}, "random, pca"),
    ({"directions": "layer"}, "filter, raw"),
    ({"on": "test"}, "train, eval"),
    ({"precision": "bf16"}, "fp32, fp64"),
    ({"batch_norm": "frozen"}, "batch, saved"),
    ({"points": 1}, "2 <= value"),
    ({"probes": 7}, "8 <= value"),
    ({"top": 0}, "1 <= value"),
    ({"chunk": 0}, "1 <= value"),
    ({"samples": 0}, "1 <= value"),
    ({"span": 0.0}, "0 < value"),
    ({"rho": float("nan")}, "0 < value"),
    ({"epsilon": float("inf")}, "0 < value"),
    ({"tolerance": 1.0}, "0 < value < 1"),
    ({"seed": -1}, "0 <= value"),
    ({"seed": 2**63}, "0 <= value < 9223372036854775808"),
    ({"workers": "many"}, "--workers auto"),
    ({"format": "xml"}, "text, json"),
]


@pytest.mark.parametrize(("settings", "hint"), WRONG, ids=lambda value: str(value))
def test_what_cannot_be_right_is_refused_with_what_is(settings: dict[str, Any], hint: str) -> None:
    """The message names the flag as it is typed, the hint the legal values."""
    with pytest.raises(PacelineError) as refused:
        check(config(**settings))

    assert any(LandscapeConfig.flag(name) in refused.value.what for name in settings)
    assert hint in refused.value.hint
    check(config(seed=2**63 - 1))


def test_the_second_runs_flag_is_called_with() -> None:
    """A word of Python's own, which no field can have."""
    assert [LandscapeConfig.flag(name) for name in ("other", "other_checkpoint", "curvature_samples", "target")] == [
        "--with",
        "--with-checkpoint",
        "--curvature-samples",
        "TARGET",
    ]


def test_settings_survive_their_record() -> None:
    """To run.json and back; what another version knew is refused by name."""
    settings = config(points=7, rho=0.5, measure="sam")

    assert LandscapeConfig.from_dict(dataclasses.asdict(settings)) == settings
    with pytest.raises(PacelineError, match="cannot be read") as refused:
        LandscapeConfig.from_dict({**dataclasses.asdict(settings), "colour": "red"})
    assert "colour" in refused.value.why


NUMBERS = {f.name: f for f in dataclasses.fields(LandscapeConfig) if f.metadata["recipe"]}


@given(name=st.sampled_from(sorted(NUMBERS)))
def test_no_setting_that_decides_a_number_changes_on_resume(name: str) -> None:
    """Whichever it is; the same value may be given again."""
    stored = config(other="B")
    other = {int: 77, float: 0.123, str: "other", type(None): "other"}[type(getattr(stored, name))]

    stored.resumed_with({name: getattr(stored, name)})
    with pytest.raises(PacelineError) as refused:
        stored.resumed_with({name: other})

    assert LandscapeConfig.flag(name) in refused.value.what


def test_how_it_is_carried_out_may_change_on_resume() -> None:
    """Workers, the place of the data, the format."""
    resumed = config().resumed_with({"workers": "3", "format": "json", "data_dir": "d"})

    assert (resumed.workers, resumed.format, resumed.data_dir) == ("3", "json", "d")


def measured_by(world: int, checkpoints: int = 0, **settings: Any) -> Session:
    """A session of so many ranks on a million samples, as far as its cost needs one."""
    subject, ranks = SimpleNamespace(data=range(10**6)), SimpleNamespace(world=world)
    return Session(config(**settings), subject, ranks, checkpoints)


def test_the_cost_is_the_work_times_what_a_sample_takes() -> None:
    """25 x 25 points on 10,000 samples at 1 microsecond on two workers are 3.125 s, and a line says so."""
    lines = cost_lines(measured_by(2, measure="surface"), Pace(1e-6, 5e-6))

    assert lines[0] == "surface: 625 passes over 10,000 samples, about 3 s"
    assert "2 workers" in lines[-1]
    products = cost_lines(measured_by(2, measure="eigenvalues", steps=50), Pace(1e-6, 1e-3))
    assert products[0] == "eigenvalues: at most 100 Hessian-vector products over 2,000 samples, about 2 min"


def test_a_path_costs_a_pass_a_checkpoint() -> None:
    """Also where it is the plane of the surface that needs it."""
    session = measured_by(1, 40, measure="surface", plane="pca", points=2, samples=1_000)

    lines = cost_lines(session, Pace(1e-3, 1e-3))

    assert lines[0] == "trajectory: 40 passes over 1,000 samples, about 40 s"
    assert lines[-1].startswith("cost: about 44 s")


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_workers_share_the_cost_as_far_as_there_is_something_to_share(name: str) -> None:
    """Points of a slice are shared out, chunks of samples of a curvature: eight of each keep four workers busy,
    and one chunk keeps one of them busy."""

    def seconds(world: int, samples: int) -> float:
        settings = {"measure": name, "points": 8, "other": "B", "chunk": 100}
        session = measured_by(world, 8, samples=samples, curvature_samples=samples, **settings)
        return cost(session, Pace(1e-4, 1e-3))[name]

    assert seconds(1, 800) == pytest.approx(4 * seconds(4, 800))
    shared = 1 if MEASURES[name].curvature else 4
    assert seconds(1, 100) == pytest.approx(shared * seconds(4, 100))


def test_a_directory_called_like_a_task_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it holds a run; any other directory is meant to be one."""
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "other"):
        (tmp_path / name).mkdir()

    assert not is_run("digits")
    assert is_run("other")
    assert not is_run("nothing")
    (tmp_path / "digits" / "run.json").write_text("{}")
    assert is_run("digits")
