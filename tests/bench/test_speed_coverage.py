"""Coverage of intervals from recorded scenes: shares with their intervals, and tables."""

import math

import pytest
from bench.speed_coverage import error, judged, over_scenes, tables, width, wilson
from bench.speed_scenes import SETS, scenes
from scipy.stats import binomtest

from paceline.plan.collectives import Link, ring


def row(scene, inside, kind="more workers", workers=8):
    """An unseen setting with a prediction of 100 ms [90, 120]."""
    measured = 0.1 if inside else 0.2
    return {
        "scene": scene, "kind": kind, "workers": workers, "micro": 64, "most": 4, "processors": 2, "measured": measured,
        "rounds": [measured], "predicted": 0.1, "low": 0.09, "high": 0.12, "inside": inside,
        "perfect": 0.1, "pollux": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize(("inside", "count"), [(1, 10), (18, 36), (80, 100), (126, 126)])
def test_the_interval_of_a_share_is_wilsons(inside, count):
    """As scipy has it."""
    reference = binomtest(inside, count).proportion_ci(0.95, method="wilson")

    assert wilson(inside, count) == pytest.approx((reference.low, reference.high), abs=1e-6)


def test_scenes_that_are_all_or_nothing_widen_the_interval():
    """Ten settings a scene that go together say as much as one of them."""
    apart = [row(f"s-{n}", inside=n % 5 > 0) for n in range(100)]
    together = [row(f"s-{n // 10}", inside=n // 10 % 5 > 0) for n in range(100)]

    assert over_scenes(apart)[1] - over_scenes(apart)[0] < 0.6 * (over_scenes(together)[1] - over_scenes(together)[0])
    assert width(apart[0]) == pytest.approx(0.3)
    assert error(row("s", inside=False)) == pytest.approx(-0.5)


def test_scenes_are_drawn_from_their_seed_and_keep_fitted_and_unseen_apart():
    """At least 100 unseen settings in the set that nothing was made from; no two sets share a scene."""
    drawn = {kind: scenes(kind) for kind in SETS}

    assert drawn["unseen"] == scenes("unseen")
    assert sum(len(scene.unseen) for scene in drawn["unseen"]) >= 100
    assert len({scene.emulated for each in drawn.values() for scene in each}) == sum(map(len, drawn.values()))
    for scene in (scene for each in drawn.values() for scene in each):
        assert not set(scene.fitted) & set(scene.unseen)


def test_a_recorded_scene_is_predicted_from_its_fitted_runs_alone(monkeypatch):
    """Times that are work alone: 10 ms and 1 ms a sample, whatever the workers; an unseen one takes 3 times that."""
    monkeypatch.setattr("paceline.plan.refits.REFITS", 4)
    link = Link(1e-4, 2e9)

    def run(workers, micro, factor=1.0):
        step = factor * (0.01 + 0.001 * micro)
        times = [step] * 25 if workers == 1 else None
        return {"workers": workers, "micro": micro, "size_bytes": 4, "step_s": step, "spread": 0.0, "times": times}

    fitted = [(k, b) for k in (1, 2) for b in (16, 64, 256)]
    cell = {
        "scene": {"name": "unseen-00", "fitted": fitted, "unseen": [(1, 512), (2, 128)]},
        "environment": {"cores": 8},
        "measured_at": "2026-01-01T10:00:00",
        "load": {"load_average": [1.0, 1.0, 1.0], "realtime": False},
        "probed": [(k, size, ring(k, size, link)) for k in (2, 3) for size in (4096, 1 << 20, 1 << 24)],
        "runs": [run(*setting) for setting in fitted] + [run(1, 512), run(1, 512), run(2, 128, factor=3.0)],
    }

    rows = judged(cell)

    assert [(r["kind"], r["inside"]) for r in rows] == [("larger batches", True), ("interpolation", False)]
    assert rows[0]["predicted"] == pytest.approx(0.522, rel=0.02)
    assert math.isclose(rows[1]["measured"], 3 * 0.138)
    text = "\n".join(tables({"unseen": rows}, [cell]))
    assert "| all | 2 | 1 | 50% [9 to 91 %]" in text
    assert "| larger batches | 1 | 1 |" in text
