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
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import GroupMade, ModelWrapped, ObservedStep, ScriptEnded
from paceline.records.schema import Finding

_CERTAIN = 20
"""Steps without a group after which none is expected any more."""


class SeparateWorlds(Audit):
    """Compares the groups that processes made with the world that was launched."""

    code, name, topic = "DP113", "separate-worlds", "replicas"
    faults = ("F128",)
    needs = ("steps", "groups")
    explains_divergence = True

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._groups: dict[int, GroupMade] = {}
        self._grouped: set[int] = set()
        self._ended: set[int] = set()
        self._steps: dict[int, int] = {}
        self._first: Earliest[ObservedStep] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        """Note groups, wrapped models (which need a group) and steps."""
        if isinstance(event, GroupMade):
            self._groups[rank] = event
            self._grouped.add(rank)
        elif isinstance(event, ModelWrapped) and event.group > 1:
            self._grouped.add(rank)
        elif isinstance(event, ObservedStep):
            self._steps[rank] = max(event.step, self._steps.get(rank, 0))
            self._first.add(event.step, rank, event)
        elif isinstance(event, ScriptEnded):
            self._ended.add(rank)

    def findings(self) -> list[Finding]:
        if self.world < 2 or len(self._steps) < 2:
            return []
        alone = [
            rank
            for rank, group in sorted(self._groups.items())
            if group.rank == 0 and group.world < self.world and rank in self._steps
        ]
        if len(alone) > 1:
            size = self._groups[alone[0]].world
            return [self._found(alone, f"each rank 0 of a process group of {size}", self._groups[alone[0]])]
        apart = sorted(self._steps)
        over = all(self._steps[rank] >= _CERTAIN or rank in self._ended for rank in apart)
        if self._grouped or not over:
            return []
        return [self._found(apart, "without a process group", None)]

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
            groups={str(rank): [each.rank, each.world] for rank, each in sorted(self._groups.items())},
        )

    def looked_at(self) -> str:
        return f"process groups of {len(self._groups)} processes" if self._groups and self.world > 1 else ""
