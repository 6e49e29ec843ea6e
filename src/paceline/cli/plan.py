"""`paceline plan`: predictions before paying."""

from __future__ import annotations

import typer

from paceline.cli import plan_batch, plan_data, plan_speed, plan_trends

plan_app = typer.Typer(
    name="plan",
    help="Predict before paying: batch size, speed, data and cost. Every prediction has its interval and its evidence.",
    epilog="Example: paceline plan speed runs/speed-* --probe",
    no_args_is_help=True,
    rich_markup_mode=None,
)
plan_batch.add(plan_app)
plan_speed.add(plan_app)
plan_data.add(plan_app)
plan_trends.add(plan_app)
