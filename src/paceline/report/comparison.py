"""Several runs side by side: which settings differ, and the numbers with their ratios to the first run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from paceline.report import launch_view, words
from paceline.report.run_record import Run
from paceline.report.summary import Summary

NOT_SET = "not set"
_NO_SETTING = frozenset(
    {"run_dir", "resume", "format", "log_dir", "logs_specs", "rdzv_id", "rdzv_endpoint", "master_port"}
)
CAUTION = (
    "Ratios are to the first run. Each run was measured once, not interleaved with the others: they describe these "
    "runs, and an interval on a speed-up needs a benchmark of both sides in one go."
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same in all runs."""

    name: str
    values: list[str]
    """One a run, as people read them."""


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity of each run."""

    name: str
    values: list[float | None]
    shown: list[str]
    ratios: list[float | None]
    """To the first run; None where either is not known, or the first is zero."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs beside each other; every list inside has one entry a run, in the order given."""

    runs: list[str]
    settings: list[Setting]
    numbers: list[Number]
    caution: str = CAUTION
    """Empty where no ratio is shown."""
    remarks: list[str] = []
    """What some of the runs did not observe, and is therefore left out."""


def compare(runs: Sequence[Run], summaries: Sequence[Summary]) -> Comparison:
    """What differs between runs, and by how much.

    Args:
        runs: at least one.
        summaries: of the same runs, in the same order.
    """
    names = labels([run.info.name for run in runs], [run.path for run in runs])
    if any(summary.launch for summary in summaries):
        return _with_launched(names, runs, summaries)
    return Comparison(runs=names, settings=_settings(runs), numbers=_numbers(summaries))


def _with_launched(names: list[str], runs: Sequence[Run], summaries: Sequence[Summary]) -> Comparison:
    """Only what all of these runs have: a run of `paceline run` has no settings of a trainer, nor its numbers."""
    kept = [row for row in _settings(runs) if NOT_SET not in row.values]
    numbers = [row for row in _launch_numbers(summaries) if None not in row.values]
    remarks = [
        f"{name}: started by paceline run; not observed: {', '.join(summary.launch.not_observed) or 'nothing'}."
        for name, summary in zip(names, summaries, strict=True)
        if summary.launch is not None
    ]
    caution = CAUTION if any(ratio is not None for row in numbers for ratio in row.ratios[1:]) else ""
    return Comparison(runs=names, settings=kept, numbers=numbers, caution=caution, remarks=remarks)


def _launch_numbers(summaries: Sequence[Summary]) -> list[Number]:
    exits = [None if s.exit_code is None else float(s.exit_code) for s in summaries]
    return [
        _number("exit code", exits, words.integer, ratio=False),
        _number("wall time", [s.launch.wall_s if s.launch else None for s in summaries], words.duration),
        _number(
            "attempts", [len(s.launch.attempts) if s.launch else None for s in summaries], words.integer, ratio=False
        ),
        _number("steps", [_of(s, "steps") for s in summaries], words.integer),
        _number("steps/s", [_of(s, "steps_per_s") for s in summaries], words.rate),
        _number("samples/s", [_of(s, "samples_per_s_overall") for s in summaries], words.rate),
        _number("findings", [_findings(s) for s in summaries], words.integer, ratio=False),
    ]


def _of(summary: Summary, name: str) -> float | None:
    value = getattr(summary.launch, name, None)
    return None if value is None else float(value)


def _findings(summary: Summary) -> float | None:
    found = summary.launch.observation if summary.launch else None
    return None if found is None else float(len(found.findings))


def labels(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """A short name for each run, no two the same: its name, else its directory's, else numbered.

    Args:
        names: of the runs.
        paths: their directories, in the same order.
    """
    for named in (list(names), [path.resolve().name for path in paths]):
        if len(set(named)) == len(named):
            return named
    return [f"{number}: {name}" for number, name in enumerate(names, start=1)]


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names; lists are leaves."""
    if not isinstance(value, Mapping) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(leaves(inner, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def _settings(runs: Sequence[Run]) -> list[Setting]:
    tables = [_facts(run) for run in runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = []
    for name in names:
        values = [words.plain(table[name]) if name in table else NOT_SET for table in tables]
        if len(set(values)) > 1:
            rows.append(Setting(name=name, values=values))
    return rows


def _facts(run: Run) -> dict[str, Any]:
    info = run.info
    facts: dict[str, Any] = {"verb": info.verb}
    if (world := info.topology.world if info.topology else launch_view.launch_world(run)) is not None:
        facts["ranks"] = world
    if info.batch is not None:
        facts |= leaves(msgspec.to_builtins(info.batch), "batch")
    if info.topology is not None:
        facts |= leaves(msgspec.to_builtins(info.topology), "machine")
    if info.precision is not None:
        facts["precision used"] = info.precision
    if info.task is not None:
        facts |= leaves(msgspec.to_builtins(info.task), "task")
    if info.config:
        # Where a run went is no setting of it, and would differ between any two runs.
        facts |= {name: value for name, value in leaves(info.config).items() if name not in _NO_SETTING}
    facts |= leaves(info.versions, "version") if info.versions else {}
    if info.git is not None:
        facts["commit"] = info.git.commit[:12] + (" with uncommitted changes" if info.git.dirty else "")
    return facts


def _numbers(summaries: Sequence[Summary]) -> list[Number]:
    rows = []
    metrics = list(dict.fromkeys(metric.name for summary in summaries for metric in summary.metrics))
    for name in metrics:
        found = [summary.metric(name) for summary in summaries]
        rows.append(_number(f"final {name}", [m.final.value if m else None for m in found], words.decimal))
        rows.append(_number(f"best {name}", [m.best.value if m and m.best else None for m in found], words.decimal))
    first = [s.target.first if s.target else None for s in summaries]
    if any(first) and len({(s.target.metric, s.target.value) if s.target else None for s in summaries}) == 1:
        target = summaries[0].target
        assert target is not None
        goal = f"{target.metric} {target.value:g}"
        rows.append(_number(f"time to {goal}", [p.elapsed_s if p else None for p in first], words.duration))
        rows.append(_number(f"samples to {goal}", [p.samples if p else None for p in first], words.integer))
        rows.append(_number(f"steps to {goal}", [p.step if p else None for p in first], words.integer))
    rows.append(_number("training time", [s.elapsed_s for s in summaries], words.duration))
    rows.append(
        _number("samples/s, median", [s.throughput.median if s.throughput else None for s in summaries], words.rate)
    )
    for unit in dict.fromkeys(s.unit for s in summaries if s.count_throughput is not None):
        counted = [s.count_throughput.median if s.count_throughput and s.unit == unit else None for s in summaries]
        rows.append(_number(f"{unit}/s, median", counted, words.rate))
    rows.append(_number("samples/s, everything included", [s.throughput_overall for s in summaries], words.rate))
    rows.append(_number("loss of the last step", [s.train_loss for s in summaries], words.decimal))
    rows.append(_number("steps", [s.steps for s in summaries], words.integer))
    rows.append(_number("samples", [s.samples for s in summaries], words.integer))
    rows.append(_number("epochs", [s.epochs for s in summaries], lambda value: f"{value:.2f}"))
    for name in dict.fromkeys(phase.name for summary in summaries for phase in summary.phases):
        seconds = [next((p.seconds for p in s.phases if p.name == name), None) for s in summaries]
        rows.append(_number(f"time in {name}", seconds, words.duration))
    return rows


def _number(name: str, values: Sequence[float | None], show: Callable[[float], str], *, ratio: bool = True) -> Number:
    finite = [float(v) if v is not None and math.isfinite(v) else None for v in values]
    base = finite[0] if finite else None
    return Number(
        name=name,
        values=finite,
        shown=[words.NOT_OBSERVED if value is None else show(value) for value in finite],
        ratios=[None if value is None or not base or not ratio else value / base for value in finite],
    )
