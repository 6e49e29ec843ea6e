"""Numbers the collectives that a script calls on each process group, so that ranks can be compared call by call.

Every rank of a group has to call the same collectives in the same order. A group has the same name on all of its ranks,
since they meet under it in the store.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from paceline.records.observed import CollectivesCounted

POINT_TO_POINT = ("send", "isend", "recv", "irecv")
_EQUAL = {
    "all_reduce": "tensor",
    "all_reduce_coalesced": "tensors",
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "broadcast": "tensor",
    "gather": "tensor",
    "reduce": "tensor",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
}
"""The argument whose size is the same on every rank. With NCCL, all_gather and reduce_scatter take lists of tensors of
different sizes, but the same list everywhere."""
_ROOTS = (("src", "group_src"), ("dst", "group_dst"))


class Signature:
    """Reads the arguments of calls of a function by their names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._at = {name: at for at, name in enumerate(inspect.signature(function).parameters)}

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def value(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An argument as it was given; None where it was not."""
        at = self._at.get(name, len(args))
        return args[at] if at < len(args) else kwargs.get(name)


class GroupCalls:
    """Counts the calls on each group of this process.

    Groups are kept by name: holding one would prolong its life. A name comes again in a default group that is made
    after the first was destroyed, so the count of default groups is part of the key.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._default: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._lost: set[str] = set()
        self._sends = False

    def count(self, group: Any, generation: int) -> tuple[str, int | None]:
        """Count a call. Returns the group's name and the number of the call on it; None where that is not known."""
        name = self._default.get(generation) if group is None else ""
        if not name:
            group = dist.group.WORLD if group is None else group
            if not isinstance(group, dist.ProcessGroup):  # there is none, or this rank is no member of it
                return "", None
            name = str(group.group_name) + (f" of init {generation}" if generation > 1 else "")
            if name not in self._sizes:
                self._sizes[name] = group.size()
                if group is dist.group.WORLD:
                    self._default[generation] = name
        number = self._counts[name] = self._counts.get(name, 0) + 1
        return name, number if name not in self._lost else None

    def failed(self, name: str) -> None:
        """A call raised an exception: whether it counts is not known."""
        self._lost.add(name)

    def sends(self) -> None:
        """Sends and receives count as well from here on, and need not be as many on each rank."""
        self._sends = True

    def size(self, name: str) -> int:
        """Ranks in a group."""
        return self._sizes.get(name, 0)

    def issued(self, group: Any) -> int | None:
        """Collectives of a group that this rank has issued, those of DDP too; None where that is not known."""
        if self._sends:
            return None
        try:
            known: Any = dist.group.WORLD if group is None else group
            return int(known._get_sequence_number_for_group())
        except (AttributeError, RuntimeError, ValueError):  # no such group any more, or a backend that does not count
            return None

    def totals(self, generation: int) -> list[CollectivesCounted]:
        """The counts at the end of the script; none where an exception ends it, which has a reason of its own."""
        if sys.exc_info()[0] is not None or hasattr(sys, "last_type"):
            return []
        default = self._default.get(generation)
        return [
            CollectivesCounted(
                group=name, size=self._sizes[name], calls=calls, issued=self.issued(None) if name == default else None
            )
            for name, calls in self._counts.items()
            if name not in self._lost
        ]


def equal_bytes(name: str, given: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Size of what a collective needs to be of one size on all ranks; None where sizes may differ."""
    value = given.value(_EQUAL.get(name, ""), args, kwargs)
    tensors = [value] if isinstance(value, Tensor) else value
    if not isinstance(tensors, list | tuple) or any(
        not isinstance(each, Tensor) or each.layout != torch.strided for each in tensors
    ):
        return None
    return sum(int(each.nbytes) for each in tensors)


def root_of(given: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The rank of the job that is the source or the destination; None for collectives that have none."""
    for of_job, of_group in _ROOTS:
        if of_job in given:
            root = given.value(of_job, args, kwargs)
            if root is not None:
                return int(root)
            group = given.value("group", args, kwargs) or c10d._get_default_group()
            return int(dist.get_global_rank(group, given.value(of_group, args, kwargs) or 0))
    return None
