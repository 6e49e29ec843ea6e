"""What moves on a terminal: rates from the recent past only, and lines that fit."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from paceline.cli.landscape_progress import MeasureProgress
from paceline.cli.live import CountLine, LiveProgress, RecentRate, clock, fitting
from paceline.records.schema import Measuring

WIDTHS = [20, 30, 40, 59, 60, 80, 200]


def rate_after(*points: tuple[float, float]) -> float | None:
    """Of points (seconds, done)."""
    rate = RecentRate()
    for at, done in points:
        rate.add(at, done)
    return rate.value


def test_a_rate_needs_two_points_and_one_step_a_refresh_is_enough() -> None:
    """32 samples every 0.75 s are 42.7 a second however rarely they are looked at."""
    assert rate_after() is None
    assert rate_after((0.75, 32)) is None
    assert rate_after((0.75, 32), (0.75, 64)) is None
    assert rate_after((0.75, 32), (1.5, 64)) == pytest.approx(32 / 0.75)


def test_a_rate_is_that_of_the_last_five_seconds_or_steps_whichever_is_longer() -> None:
    """Fast steps: five seconds. Slow ones: five steps."""
    fast = [(0.01 * n, 1.0 * n) for n in range(1001)]
    later = [(10 + 0.01 * n, 1000 + 2.0 * n) for n in range(1, 601)]
    slow = [(60.0 * n, 10.0 * n) for n in range(6)] + [(300 + 30.0 * n, 50 + 10.0 * n) for n in range(1, 6)]

    assert rate_after(*fast) == pytest.approx(100)
    assert rate_after(*fast, *later) == pytest.approx(200, rel=0.01)
    assert rate_after(*slow) == pytest.approx(1 / 3)


def test_pauses_are_no_part_of_a_rate_and_a_resumed_run_begins_anew() -> None:
    """An evaluation of 10 s between two steps; a session that begins at an earlier step."""
    rate = RecentRate()
    rate.add(1.0, 10)
    rate.add(2.0, 20)
    rate.pause(10.0)
    rate.add(13.0, 30)

    assert rate.value == pytest.approx(10)
    assert rate.left_s(60) == pytest.approx(3)
    rate.add(12.5, 15)
    assert rate.value is None
    assert rate.left_s(60) is None


def test_time_left_is_read_as_a_clock() -> None:
    """A dash as long as there is no rate."""
    assert clock(None) == "- left"
    assert clock(0.2) == "0:01 left"
    assert clock(67) == "1:07 left"
    assert clock(3723) == "1:02:03 left"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_live_line_drops_parts_from_the_right_and_never_cuts_one(width: int) -> None:
    """Step count and time left are the last to go."""
    parts = ["step 1,200/12,345", "12:05 left", "loss 0.4711", "12,340 samples/s"]
    out = StringIO()
    progress = LiveProgress(Console(file=out, width=width, force_terminal=True, color_system=None))
    progress.add_task(parts[0], total=12345, completed=1200, parts=parts[1:])

    progress.console.print(progress.get_renderable())

    (line,) = out.getvalue().splitlines()
    shown = [part for part in parts if part in line]
    assert len(line.rstrip()) <= width
    assert line.startswith("  ".join(shown))
    assert shown == parts[: len(shown)]
    assert set(line[len("  ".join(shown)) :]) <= set(" ━╸╺")
    assert len(shown) == {20: 1, 30: 2, 40: 2, 59: 3}.get(width, 4)
    assert (len(line.rstrip()) > len("  ".join(shown))) == (width in (59, 80, 200))


def test_a_long_first_part_keeps_its_leading_words() -> None:
    """A message of a download."""
    assert fitting(["getting Fashion-MNIST from mirror.example", "3/30 MB"], 30) == "getting Fashion-MNIST from"
    assert fitting(["getting Fashion-MNIST", "3/30 MB"], 30) == "getting Fashion-MNIST  3/30 MB"


@pytest.mark.parametrize("width", WIDTHS)
def test_progress_of_a_measurement_and_of_a_plan_fits(width: int) -> None:
    """What `landscape` and `plan` draw: done and time left first, and a dash before there is a rate."""
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    with MeasureProgress(console) as progress:
        for done, at in ((1, 2.0), (3, 4.0)):
            unit, shown = "Hessian products", "largest 12.3 (residual 0.04)"
            progress(Measuring(measure="eigenvalues", done=done, total=100, unit=unit, elapsed_s=at, shown=shown))
        assert progress._progress is not None
        progress._progress.refresh()
    with LiveProgress(console) as live:
        CountLine(live, "trainings")(1, 20, "global batch 4096, seed 1")
        live.refresh()

    lines = [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[a-zA-Z]", out.getvalue()) if line.strip()]
    assert max(map(len, lines)) <= width
    assert any("trainings" in line for line in lines)
    assert width < 59 or any("eigenvalues  3/100 Hessian products  1:37 left" in line for line in lines)
    assert width < 40 or any("trainings  1/20  - left" in line for line in lines)
