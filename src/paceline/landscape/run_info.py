"""run.json of a measurement, and its settings in words."""

from __future__ import annotations

import dataclasses
import datetime

import scipy

from paceline.landscape.choices import BATCH_NORM_WORDS
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.session import Session
from paceline.landscape.subject import Subject
from paceline.parallel.host import git_state, memory_settings, started_by, topology, versions
from paceline.parallel.rank_context import RankContext
from paceline.records.schema import SCHEMA, RunInfo


def batch_norm_words(config: LandscapeConfig, subject: Subject) -> str:
    """How batch norm was treated."""
    return BATCH_NORM_WORDS[config.batch_norm if subject.batch_norm else "none"].format(chunk=config.chunk)


def chunk_words(samples: int, chunk: int) -> str:
    """How so many samples are cut: `2 chunks of 201 and 200 samples`."""
    count = -(-samples // chunk)
    smaller, larger = divmod(samples, count)
    if not larger:
        return f"{count:,} chunk{'s' if count > 1 else ''} of {smaller:,} samples"
    if count == 2:
        return f"2 chunks of {smaller + 1:,} and {smaller:,} samples"
    return f"{larger:,} of {smaller + 1:,} samples and {count - larger:,} of {smaller:,}, {count:,} chunks in all"


def first_note(session: Session) -> str:
    """The first message of a measurement: weights, samples, batch norm."""
    config, subject = session.config, session.subject
    whose = "fresh weights" if subject.step is None else f"step {subject.step:,}"
    kind = {"train": "training", "eval": "evaluation"}[config.on]
    samples, curvature = session.samples, session.curvature_samples
    return (
        f"{whose} of {config.target}; slices on {samples:,} and curvature on {curvature:,} {kind} samples, without "
        f"augmentation; batch norm: {batch_norm_words(config, subject)}; "
        f"slices in {chunk_words(samples, config.chunk)}, curvature in {chunk_words(curvature, config.chunk)}"
    )


def run_info(session: Session, context: RankContext) -> RunInfo:
    """Everything that is known when a measurement starts."""
    config, subject = session.config, session.subject
    return RunInfo(
        schema=SCHEMA,
        verb="landscape",
        name=subject.task.name,
        command=context.command,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions={**versions(), "scipy": scipy.__version__},
        config=dataclasses.asdict(config),
        topology=topology(context),
        precision=config.precision,
        git=git_state(),
        facts={
            "weights": subject.fingerprint,
            "checkpoint": subject.step,
            "parameters": session.slices.size,
            "batch_norm": batch_norm_words(config, subject),
            "data_source": subject.task.data_source,
            "channels_last": subject.like.channels_last,
            "malloc": memory_settings(),
            "started_by": started_by(),
            "other_weights": session.other_weights,
        },
    )
