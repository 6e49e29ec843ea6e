"""Numbers and facts as people read them: one place, so that card, page and table say the same."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paceline.records.schema import Finding, RunInfo

NOT_OBSERVED = "not observed"
FUSED = ("sgd", "adamw")
"""Optimizers of `paceline train` that go over a tensor once a step, in torch's own fused kernels."""


def unbounded(value: float) -> str:
    """A whole number, or that there is no end."""
    return integer(value) if math.isfinite(value) else "no end"


def integer(value: float | None) -> str:
    """1234567 as 1,234,567."""
    return f"{value:,.0f}" if value is not None and math.isfinite(value) else NOT_OBSERVED


def count(value: float | None) -> str:
    """What a mean was taken over: 10,000 samples or tokens; weights with their fraction, 0.0002667."""
    if value is None or not math.isfinite(value) or value == round(value):
        return integer(value)
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """Three significant places or so: 1.87 ms, 0.042 s, 7.31 s, 42.3 s, 3 min 07 s, 2 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_OBSERVED
    if 0 < seconds < 0.00995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def rate(value: float | None) -> str:
    """Samples a second, four significant places at most: 12,340, 987, 4.21."""
    if value is None or not math.isfinite(value):
        return NOT_OBSERVED
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def share(value: float | None) -> str:
    """0.1234 as 12.3 %."""
    return f"{100 * value:.1f} %" if value is not None and math.isfinite(value) else NOT_OBSERVED


def decimal(value: float | None) -> str:
    """A loss or a metric: four places, or four significant ones when it is small."""
    if value is None:
        return NOT_OBSERVED
    if not math.isfinite(value):
        return "not a finite number"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.01 else f"{value:.3e}"


def counted(metric: str, value: float | None, over: float | None) -> str:
    """What a metric was taken over: `9,123 of 10,000` for an accuracy, else `over 10,000`."""
    if value is None or over is None or not math.isfinite(value) or not math.isfinite(over):
        return ""
    right = value * over
    if metric == "accuracy" and over == round(over) and abs(right - round(right)) < 1e-3:
        return f"{integer(round(right))} of {integer(over)}"
    return f"over {count(over)}"


def size(count_bytes: float) -> str:
    """Bytes in binary units."""
    for unit in ("bytes", "KiB", "MiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "bytes" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:,.1f} GiB"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 step`, `2 steps`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def finding_counts(findings: Iterable[Finding]) -> str:
    """`1 error, 2 warnings, 2 info`; empty without findings."""
    severities = [each.severity for each in findings]
    many = {"error": "errors", "warning": "warnings", "info": "info"}
    known = [plural(severities.count(each), each, more) for each, more in many.items() if each in severities]
    other = sum(each not in many for each in severities)
    return ", ".join([*known, *([plural(other, "other finding")] if other else [])])


def place(path: str | None, line: int | None) -> str:
    """`train.py:12`, relative to the working directory where it is below it; empty where it is not known."""
    if path is None:
        return ""
    here = Path.cwd()
    shown = Path(path).relative_to(here) if Path(path).is_relative_to(here) else Path(path)
    return f"{shown}:{line}" if line is not None else str(shown)


def plain(value: Any) -> str:
    """A setting as it was typed, near enough: text bare, everything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False, default=str)


def command(info: RunInfo) -> str:
    """The exact command, quoted for a shell."""
    return shlex.join(info.command)


def first_line(info: RunInfo) -> str:
    """The run's first line: per-rank batch × accumulation × world = global batch, then what else decides."""
    parts = []
    if (batch := info.batch) is not None:
        product = batch.per_rank * batch.accumulation * batch.world
        sign = "=" if product == batch.global_batch else "≥"
        parts.append(
            f"{integer(batch.per_rank)} per rank × {integer(batch.accumulation)} accumulation × "
            f"{plural(batch.world, 'rank')} {sign} global batch {integer(batch.global_batch)}"
        )
    if info.task is not None:
        parts.append(f"{plural(info.task.steps_per_epoch, 'step')} per epoch")
    if (rate_text := learning_rate(info)) is not None:
        parts.append(rate_text)
    if (where := info.topology) is not None:
        nodes = "" if where.nodes == 1 else f" on {where.nodes} machines"
        parts.append(f"{where.world} × {where.device}{nodes}, {where.backend}")
    if info.precision is not None:
        parts.append(info.precision)
    return " · ".join(parts)


def fast_line(info: RunInfo) -> str:
    """What makes the run fast, and why it was chosen; empty when nothing was recorded."""
    parts = []
    if info.precision is not None and (reason := info.facts.get("precision_reason")):
        parts.append(f"{info.precision} ({reason})")
    if info.facts.get("channels_last"):
        parts.append("channels last")
    if info.config.get("optimizer") in FUSED:
        parts.append(f"fused {info.config['optimizer']}")
    if info.facts.get("malloc", {}).get("MALLOC_MMAP_MAX_") == "0":
        parts.append("malloc keeps its memory")
    where = info.topology
    if where is not None and where.device == "cpu" and where.threads_per_rank is not None:
        parts.append(plural(where.threads_per_rank, "thread") + " a rank")
    return " · ".join(parts)


def learning_rate(info: RunInfo) -> str | None:
    """The learning rate with its schedule, as far as the settings tell."""
    value = info.facts.get("lr", info.config.get("lr"))
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    schedule = info.config.get("schedule")
    warmup = info.facts.get("warmup_steps")
    text = f"learning rate {value:g}" + _rule(info) + (f", {schedule}" if isinstance(schedule, str) else "")
    return text + (f" after {plural(warmup, 'warm-up step')}" if isinstance(warmup, int) and warmup > 0 else "")


def _rule(info: RunInfo) -> str:
    """Where the rate came from: ` (linear rule: 8 × batch, 0.05 at 128)`; empty without a rule."""
    rule = info.facts.get("rule")
    if not isinstance(rule, dict):
        return ""
    times, base, batch = rule.get("batch_times"), info.config.get("lr"), info.config.get("base_batch")
    if not isinstance(times, int | float) or not isinstance(base, int | float) or not isinstance(batch, int):
        return ""
    return f" ({rule.get('name')} rule: {times:g} × batch, {base:g} at {integer(batch)})"


def environment(info: RunInfo) -> list[tuple[str, str]]:
    """On what the run ran, as label and value."""
    rows = [("started", info.started_at)]
    if (where := info.topology) is not None:
        rows.append(("device", f"{where.world} × {where.device_name} ({where.device}), {where.backend}"))
        rows.append(("host", where.hostname + (f", {plural(where.cores, 'core')}" if where.cores else "")))
        if where.threads_per_rank is not None:
            rows.append(("threads per rank", integer(where.threads_per_rank)))
    if info.precision is not None:
        rows.append(("precision", info.precision))
    if info.task is not None:
        rows.append(("parameters", integer(info.task.parameters)))
        rows.append(("data", info.task.data_source or NOT_OBSERVED))
    if info.git is not None:
        rows.append(("commit", info.git.commit + (" with uncommitted changes" if info.git.dirty else "")))
    rows += [(name, version) for name, version in info.versions.items()]
    return rows
