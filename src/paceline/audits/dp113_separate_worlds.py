"""The processes that were started together train apart: each is a world of its own.

What it finds:
    Processes of one job that take optimizer steps without a process group, or in groups of which several have a rank 0.

Why it matters:
    Each process trains on the whole data set and believes to be rank 0: N trainings at N times the cost, and the last
    one to write its checkpoint wins.

Repair:
    Call `torch.distributed.init_process_group()` before training and let it read RANK and WORLD_SIZE from the
    environment that the launcher sets.

Known problems:
    Independent trainings on purpose, as in a search over settings, look the same.

References:
    F128. https://github.com/mlc-ai/pith-train/issues/91
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import GroupMade, ObservedStep
from paceline.records.schema import Finding

_CERTAIN = 20
"""Steps without a group after which none is expected any more."""


class SeparateWorlds(ReplicaAudit):
    """Compares the groups that processes made with the world that was launched."""

    code, name, topic = "DP113", "separate-worlds", "replicas"
    faults = ("F128",)
    needs = ("steps", "groups")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[ObservedStep] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep):
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        groups, reached = self.replicas.groups, self.replicas.reached
        if self.world < 2 or len(reached) < 2:
            return []
        small = (rank for rank, group in groups.items() if group.rank == 0 and group.world < self.world)
        alone = sorted(rank for rank in small if rank in reached)
        if len(alone) > 1:
            size = groups[alone[0]].world
            return [self._found(alone, f"each rank 0 of a process group of {size}", groups[alone[0]])]
        over = all(step >= _CERTAIN or rank in self.replicas.ended for rank, step in reached.items())
        wrapped = any(each.group > 1 for ranks in self.replicas.models.values() for each in ranks.values())
        if groups or wrapped or not over:
            return []
        return [self._found(sorted(reached), "without a process group", None)]

    def _found(self, ranks: list[int], how: str, group: GroupMade | None) -> Finding:
        step = self._first.value
        assert step is not None
        return self.finding(
            "error",
            f"{self.world} processes were started together, and {ranks_text(ranks)} train apart, {how}: "
            f"these are {len(ranks)} trainings of their own",
            "call init_process_group() before training and let it read RANK and WORLD_SIZE from the environment",
            place=group.place if group else step.step_place,
            rank=ranks[0],
            step=step.step,
            launched=self.world,
            groups={str(rank): [each.rank, each.world] for rank, each in sorted(self.replicas.groups.items())},
        )

    def looked_at(self) -> str:
        groups = len(self.replicas.groups)
        return f"process groups of {groups} processes" if groups and self.world > 1 else ""
