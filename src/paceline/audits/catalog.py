"""All audits of observed runs, and the judge that feeds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.audits.audit import Audit
from paceline.audits.dp121_no_sampler import NoSampler
from paceline.audits.dp122_identical_batches import IdenticalBatches
from paceline.audits.dp123_same_order_each_epoch import SameOrderEachEpoch
from paceline.audits.dp124_sampler_differs import SamplerDiffers
from paceline.audits.dp125_iterable_not_sharded import IterableNotSharded
from paceline.audits.dp126_data_set_differs import DataSetDiffers
from paceline.audits.dp127_split_differs import SplitDiffers
from paceline.audits.dp128_shuffle_lost import ShuffleLost
from paceline.audits.dp129_padded_training import PaddedTraining
from paceline.audits.dp130_same_random_state import SameRandomState
from paceline.audits.dp131_learning_rate_differs import LearningRateDiffers
from paceline.audits.dp141_padded_evaluation import PaddedEvaluation
from paceline.audits.dp142_shard_metric import ShardMetric
from paceline.audits.dp151_same_file import SameFile
from paceline.audits.dp152_read_before_written import ReadBeforeWritten
from paceline.audits.dp153_path_per_rank import PathPerRank
from paceline.audits.dp154_duplicate_loggers import DuplicateLoggers
from paceline.audits.dp155_repeated_output import RepeatedOutput
from paceline.records.event import Event
from paceline.records.reader import EventStream
from paceline.records.schema import Finding

AUDITS: tuple[type[Audit], ...] = (
    NoSampler,
    IdenticalBatches,
    SameOrderEachEpoch,
    SamplerDiffers,
    IterableNotSharded,
    DataSetDiffers,
    SplitDiffers,
    ShuffleLost,
    PaddedTraining,
    SameRandomState,
    LearningRateDiffers,
    PaddedEvaluation,
    ShardMetric,
    SameFile,
    ReadBeforeWritten,
    PathPerRank,
    DuplicateLoggers,
    RepeatedOutput,
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
