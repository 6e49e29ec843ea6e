"""How often intervals of `paceline plan speed` hold the step times of settings that its fit has not seen.

From the records of bench/plan_speed.py alone: each scene's fitted runs go through what `plan speed` does, and the other
settings are predicted. Coverage has its 95 % interval (Wilson 1927), over settings; settings of one scene share a fit
and are not quite independent, so one over scenes stands beside it (bootstrap of scenes).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from paceline.plan.collectives import Network
from paceline.plan.network import Timed, fit_link
from paceline.plan.speed import CONFIDENCE, Question, predict, predictor_of
from paceline.plan.step_time import Observed, Setting

Row = dict[str, Any]
PROCESSORS = 2.0
PREDICTORS = {"predicted": "paceline plan speed", "pollux": "Pollux's form", "perfect": "perfect scaling"}
KINDS: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "interpolation": lambda row: row["kind"] == "interpolation",
    "larger batches": lambda row: row["kind"] == "larger batches",
    "more workers": lambda row: row["kind"] == "more workers",
    "as many workers as cores, or fewer": lambda row: row["workers"] <= row["processors"],
    "more workers than cores": lambda row: row["workers"] > row["processors"],
    "more workers than cores, and no run had so": lambda row: row["workers"] > row["processors"] >= row["most"],
}


def judged(cell: Mapping[str, Any]) -> list[Row]:
    """Every unseen setting of a scene: measured, predicted with its interval, and by the other predictors."""
    processors = float(cell["environment"]["cores"]) if "environment" in cell else PROCESSORS
    fitted = {tuple(setting) for setting in cell["scene"]["fitted"]}
    timings = [_timing(run) for run in cell["runs"] if _key(run) in fitted]
    link = fit_link([Timed(*row) for row in cell["probed"]], processors)
    network, first = Network(link.link), timings[0].setting
    question = Question("emulated", [1, 2], first.batch, first.micro, at=2, processors=processors)
    predictor = predictor_of(predict(timings, network, question, link=link))
    other = pollux(timings)
    most = max(workers for workers, _ in fitted)
    largest = max(micro for _, micro in fitted)
    rows = []
    for workers, micro in cell["scene"]["unseen"]:
        times = [run["step_s"] for run in cell["runs"] if _key(run) == (workers, micro)]
        measured = math.exp(statistics.fmean(map(math.log, times)))
        found = predictor.step(Setting(workers, micro))
        kind = "more workers" if workers > most else "larger batches" if micro > largest else "interpolation"
        rows.append(
            {
                "scene": cell["scene"]["name"], "kind": kind, "workers": workers, "micro": micro, "most": most,
                "processors": processors, "measured": measured, "rounds": times,
                "predicted": found.value, "low": found.low, "high": found.high,
                "inside": found.low <= measured <= found.high,
                "perfect": predictor.model.step_s(Setting(1, micro)), "pollux": other(workers, micro),
            }
        )  # fmt: skip
    return rows


def _key(run: Mapping[str, Any]) -> tuple[int, int]:
    return run["workers"], round(run["micro"])


def _timing(run: Mapping[str, Any]) -> Observed:
    times = None if run["times"] is None else np.array(run["times"])
    setting = Setting(run["workers"], float(run["micro"]))
    return Observed(setting, run["step_s"], times, run["spread"], run["size_bytes"], "run")


def pollux(fitted: Sequence[Observed]) -> Callable[[int, float], float]:
    """Pollux's step time (adaptdl's goodput.py) fitted to the same runs: a + b x, alpha + beta (k - 2), a p-norm."""
    rows = [(o.setting.workers, o.setting.micro, o.step_s) for o in fitted]

    def of(x: Any, workers: int, micro: float) -> float:
        a, b, alpha, beta = np.exp(x[:4])
        p = 1 + 9 / (1 + np.exp(-x[4]))
        network = alpha + beta * max(workers - 2, 1e-3) if workers > 1 else 0.0
        return float(((a + b * micro) ** p + network**p) ** (1 / p))

    start = np.array([np.log(0.01), np.log(5e-4), np.log(1e-3), np.log(1e-4), 0.0])
    found = least_squares(lambda x: [np.log(of(x, k, b) / t) for k, b, t in rows], start, bounds=(-25, 10)).x
    return lambda workers, micro: of(found, workers, micro)


# ---- coverage


def wilson(inside: int, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z = 1.959964
    centre = (inside + z * z / 2) / (count + z * z)
    reach = z * math.sqrt(inside * (count - inside) / count + z * z / 4) / (count + z * z)
    return centre - reach, centre + reach


def over_scenes(rows: Sequence[Row], resamples: int = 2000) -> tuple[float, float]:
    """95 % interval of the share inside, from scenes drawn with replacement."""
    scenes: dict[str, list[bool]] = {}
    for row in rows:
        scenes.setdefault(row["scene"], []).append(row["inside"])
    inside, counts = np.array([(sum(each), len(each)) for each in scenes.values()]).T
    chosen = np.random.default_rng(0).integers(len(inside), size=(resamples, len(inside)))
    low, high = np.quantile(inside[chosen].sum(axis=1) / counts[chosen].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def width(row: Row) -> float:
    """Width of the interval divided by the prediction."""
    return float((row["high"] - row["low"]) / row["predicted"])


def error(row: Row, by: str = "predicted") -> float:
    """Relative error of the predictor `by`."""
    return float(row[by] / row["measured"] - 1)


# ---- tables


def tables(sets: Mapping[str, Sequence[Row]], cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """A section a set, those that nothing was made from first."""
    lines: list[str] = []
    for kind in sorted(sets, key=list(_TITLES).index):
        own = [cell for cell in cells if cell["scene"]["name"].startswith(f"{kind}-")]
        lines += [f"## {_TITLES[kind]}", "", *_load(own), "", *_coverage(sets[kind]), ""]
        lines += [*_errors(sets[kind]), ""]
        if kind == next(iter(sorted(sets, key=list(_TITLES).index))):
            lines += ["### Every setting", "", *_settings(sets[kind]), ""]
    return lines


_TITLES = {
    "unseen": "Scenes that nothing was made from",
    "first": "Scenes of the first test, after which intervals without evidence on sharing cores were widened",
    "calibration": "Scenes that the error term was made from",
}


def _load(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    first, last = cells[0]["measured_at"], cells[-1]["measured_at"]
    averages = [cell["load"]["load_average"][0] for cell in cells]
    text = (
        f"{len(cells)} scenes, measured {first[:16]} to {last[11:16]} UTC, two rounds of 25 steps a setting. Load "
        f"average {min(averages):.0f} to {max(averages):.0f}"
    )
    if any(cell["load"]["realtime"] for cell in cells):
        text += (
            "; others used the machine, and the timed ranks were scheduled before them (SCHED_RR), so that their load "
            "was felt in memory and caches, and hardly on the cores"
        )
    return [f"{text}."]


def _coverage(rows: Sequence[Row]) -> list[str]:
    lines = [
        f"| settings | number | in the {100 * CONFIDENCE:.0f} % interval | share [95 %, over settings] | "
        "[95 %, over scenes] | median width | median error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, belongs in KINDS.items():
        own = [row for row in rows if belongs(row)]
        if not own:
            continue
        inside = sum(row["inside"] for row in own)
        settings, scenes = (
            f"{100 * a:.0f} to {100 * b:.0f} %" for a, b in (wilson(inside, len(own)), over_scenes(own))
        )
        middle = statistics.median(map(width, own)), statistics.median(abs(error(row)) for row in own)
        lines.append(
            f"| {name} | {len(own)} | {inside} | {inside / len(own):.0%} [{settings}] | {scenes} | {middle[0]:.0%} | "
            f"{middle[1]:.1%} |"
        )
    return lines


def _errors(rows: Sequence[Row]) -> list[str]:
    lines = ["| predictor | median error | 90th percentile | largest |", "|---|---|---|---|"]
    for by, name in PREDICTORS.items():
        errors = [abs(error(row, by)) for row in rows]
        numbers = statistics.median(errors), float(np.quantile(errors, 0.9)), max(errors)
        lines.append(f"| {name} | {' | '.join(f'{number:.1%}' for number in numbers)} |")
    return lines


def _settings(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| scene | workers | samples each | measured, ms | predicted, ms [80 %] | error | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        measured, predicted, low, high = (1e3 * row[name] for name in ("measured", "predicted", "low", "high"))
        lines.append(
            f"| {row['scene'].rpartition('-')[2]} | {row['workers']} | {row['micro']} | {measured:.1f} | "
            f"{predicted:.1f} [{low:.1f}, {high:.1f}] | {error(row):+.1%} | {'yes' if row['inside'] else 'no'} |"
        )
    return lines
