"""Names of tensors in two scripts of which one wraps its model and the other may not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|module)\.")


class _Name(NamedTuple):
    """A name of a state, in its parts: `optimizer:0/Net/fc.weight:exp_avg`."""

    kind: str
    optimizer: str
    model: str
    tensor: str
    key: str


def renaming(names: Iterable[str], reference: Iterable[str]) -> dict[str, str]:
    """Find the names that another script gives to the same tensors.

    A model is recognized by the names of its parameters and buffers, below those that DDP, DataParallel and
    torch.compile put in front of them. Of models with the same names, the first is the first.

    Args:
        names: of all tensors of one script's state.
        reference: of the other's.

    Returns:
        By name, the reference's name of the same tensor. Tensors that the reference does not have are left out.
    """
    ours, theirs = {name: _parsed(name) for name in names}, {_parsed(name): name for name in reference}
    models, others = _models(ours.values()), _models(theirs)
    same: dict[str, str] = {}
    for tensors, found in models.items():
        same |= dict(zip(found, others.get(tensors, []), strict=False))
    left = [[each for found in side.values() for each in found] for side in (models, others)]
    ours_left, theirs_left = (
        [each for each in left[0] if each not in same],
        [each for each in left[1] if each not in same.values()],
    )
    if len(ours_left) == len(theirs_left) == 1:  # one has tensors that the other does not
        same[ours_left[0]] = theirs_left[0]
    moved = {name: parts._replace(model=same.get(parts.model, parts.model)) for name, parts in ours.items()}
    return {name: theirs[parts] for name, parts in moved.items() if parts in theirs}


def _models(names: Iterable[_Name]) -> dict[frozenset[str], list[str]]:
    """Models by what their tensors are called, in order."""
    tensors: dict[str, set[str]] = defaultdict(set)
    for each in names:
        if each.kind in ("parameter", "buffer"):
            tensors[each.model].add(each.tensor)
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for model, own in tensors.items():
        found[frozenset(own)].append(model)
    return found


def _parsed(name: str) -> _Name:
    kind, _, rest = name.partition(":")
    optimizer = key = ""
    if kind == "optimizer":
        optimizer, _, rest = rest.partition("/")
        rest, _, key = rest.rpartition(":")
    model, _, tensor = rest.rpartition("/")
    return _Name(kind, optimizer, model, _WRAPPERS.sub("", tensor), key)
