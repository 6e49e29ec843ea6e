"""`paceline plan trends` and `paceline plan cost`: published training times, and what a training costs."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from paceline.cli.options import command_from
from paceline.cli.plan_frame import open_plan, show_plan
from paceline.plan.cost_config import CostConfig, TrendsConfig, check
from paceline.records.plan_results import write_plan

COST_HELP = """Compute what a training costs in FLOP, PF/s-days, hours and money.

For a dense transformer give --parameters and --tokens, for any other model --forward and --samples. Hours need --peak,
--precision and --utilisation.
"""


TRENDS_HELP = "Show published training times of ResNet-50 on ImageNet and how they scale."


def show_trends(given: dict[str, Any]) -> None:
    """Carry out `paceline plan trends` with what the user gave."""
    from paceline.plan.trends import trends

    config = TrendsConfig(**given)
    config.check_fields()
    run = open_plan("trends", "resnet-50", {}, config.run_dir, None)
    write_plan(run, trends())
    show_plan(run, config.format)


def run_cost(given: dict[str, Any]) -> None:
    """Carry out `paceline plan cost` with what the user gave."""
    config = CostConfig(**given)
    check(config)
    from paceline.plan.compute import bill, pfs_days

    device = config.device
    found = bill(config.flop, device, config.devices, config.efficiency or 1.0) if device is not None else None
    if config.format == "json":
        import msgspec

        document = {
            "flop": config.flop,
            "pfs_days": pfs_days(config.flop),
            "bill": found and dataclasses.asdict(found),
            "assumptions": config.assumptions,
        }
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    rows = [("computing", f"{config.flop:.4g} FLOP, {pfs_days(config.flop):,.4g} PF/s-days")]
    if found is not None and device is not None:
        of = f"{config.utilisation:.0%} of {config.peak:g} TFLOP/s in {config.precision}"
        rows.append(("device-hours", f"{found.device_hours:,.1f} at {of}"))
        on = f"{config.devices:,} device{'s' if config.devices != 1 else ''}"
        rows.append(("time", f"{found.hours:,.1f} hours on {on}{config.scaling}"))
        if found.cost is not None:
            rows.append(("cost", f"{found.cost:,.2f} at {config.price:g} an hour"))
    rows += [("assumed", text) for text in config.assumptions]
    for label, value in rows:
        sys.stdout.write(f"{label:<13} {value}\n")


COST = command_from(CostConfig, run_cost, COST_HELP)
run_trends = command_from(TrendsConfig, show_trends, TRENDS_HELP)
