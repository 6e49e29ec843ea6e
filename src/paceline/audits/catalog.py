"""All audits of observed runs, and the judge that feeds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.audits.audit import Audit
from paceline.audits.dp101_replicas_diverge import ReplicasDiverge
from paceline.audits.dp102_forward_bypasses_wrapper import ForwardBypassesWrapper
from paceline.audits.dp103_never_wrapped import NeverWrapped
from paceline.audits.dp104_parameters_outside_wrapper import ParametersOutsideWrapper
from paceline.audits.dp105_trainable_set_changed import TrainableSetChanged
from paceline.audits.dp106_step_without_synchronization import StepWithoutSynchronization
from paceline.audits.dp107_gradient_of_parameters import GradientOfParameters
from paceline.audits.dp108_parameter_order import ParameterOrder
from paceline.audits.dp109_state_restored_on_some_ranks import StateRestoredOnSomeRanks
from paceline.audits.dp110_optimizer_without_model import OptimizerWithoutModel
from paceline.audits.dp111_clip_before_synchronization import ClipBeforeSynchronization
from paceline.audits.dp112_gradient_reduced_twice import GradientReducedTwice
from paceline.audits.dp113_separate_worlds import SeparateWorlds
from paceline.audits.dp114_buffers_differ import BuffersDiffer
from paceline.audits.dp115_accumulation_without_no_sync import AccumulationWithoutNoSync
from paceline.audits.dp116_moved_after_wrap import MovedAfterWrap
from paceline.audits.dp131_learning_rate_differs import LearningRateDiffers
from paceline.audits.dp132_scheduler_steps import SchedulerSteps
from paceline.audits.dp133_loss_scale_differs import LossScaleDiffers
from paceline.audits.dp134_non_finite import NonFiniteValues
from paceline.records.event import Event
from paceline.records.reader import EventStream
from paceline.records.schema import Finding

AUDITS: tuple[type[Audit], ...] = (
    ReplicasDiverge,
    ForwardBypassesWrapper,
    NeverWrapped,
    ParametersOutsideWrapper,
    TrainableSetChanged,
    StepWithoutSynchronization,
    GradientOfParameters,
    ParameterOrder,
    StateRestoredOnSomeRanks,
    OptimizerWithoutModel,
    ClipBeforeSynchronization,
    GradientReducedTwice,
    SeparateWorlds,
    BuffersDiffer,
    AccumulationWithoutNoSync,
    MovedAfterWrap,
    LearningRateDiffers,
    SchedulerSteps,
    LossScaleDiffers,
    NonFiniteValues,
)
"""In the order of their codes."""
_SEVERITIES = ("error", "warning", "info")


class RunJudge:
    """Feeds the events of all ranks to all audits.

    Attributes:
        audits: one of each kind.
        failed: why an audit was given up, by its code.
    """

    def __init__(self, audits: Iterable[type[Audit]] = AUDITS) -> None:
        self.audits = [kind() for kind in audits]
        self.failed: dict[str, str] = {}

    def feed(self, rank: int, event: Event) -> None:
        """Take one event of a rank."""
        for audit in self.audits:
            if audit.code in self.failed:
                continue
            try:
                audit.take(rank, event)
            except Exception as error:  # noqa: BLE001  a judge that fails must not end the run or the other judges
                self.failed[audit.code] = f"{type(error).__name__}: {error}"

    def findings(self) -> list[Finding]:
        """What is wrong so far: errors first, then by code.

        That ranks diverge (DP101) is left out where another finding says why.
        """
        found, explained = [], False
        for audit in self.audits:
            if audit.code in self.failed:
                continue
            each = audit.findings()
            explained |= audit.explains_divergence and any(one.severity != "info" for one in each)
            found += each
        found = [one for one in found if not (explained and one.code == "DP101")]
        return sorted(found, key=lambda one: (_SEVERITIES.index(one.severity), one.code))


def judge_run(run: Path) -> RunJudge:
    """Judge a saved run: the events of each rank, one rank after the other."""
    judge = RunJudge()
    for path in sorted((run / "events").glob("rank-*.jsonl")):
        rank = int(path.stem.removeprefix("rank-"))
        for event in EventStream(path, superseded=True):
            judge.feed(rank, event)
    return judge
