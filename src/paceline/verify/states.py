"""States that parity runs wrote, and how far two runs are apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file

from paceline.records.parity import rank_folder, read_steps, step_folder
from paceline.verify.compare import Comparison, compare
from paceline.verify.names import renaming

State = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Difference:
    """Two runs at one place.

    Attributes:
        step: optimizer step; 0 for the start.
        what: "start", "gradients" or "state".
        found: all its tensors.
    """

    step: int
    what: str
    found: Comparison


def read_state(path: Path) -> State:
    """A file of tensors; floating point as float64."""
    return {
        name: (each.double() if each.is_floating_point() else each.long()).numpy()
        for name, each in load_file(path).items()
    }


def steps_of(folder: Path, world: int) -> list[int]:
    """The last step of each rank."""
    return [max((each.step for each in read_steps(folder, rank)), default=0) for rank in range(world)]


def differences(one: tuple[Path, int], other: tuple[Path, int], steps: int) -> Iterator[Difference]:
    """Two ranks, of the same or of different runs, at the start and at each step, in the order of time.

    Runs may give the same tensor another name: one wraps a model that the other does not.

    Args:
        one, other: folder of a run, and a rank in it. The other is the reference.
        steps: that both have.
    """
    names: dict[str, str] = {}
    for step in range(steps + 1):
        here, there = (step_folder(*run, step) if step else rank_folder(*run) for run in (one, other))
        for path in sorted(there.glob("*.safetensors")):  # gradients before the state
            if not (here / path.name).exists():
                continue
            ours, reference = read_state(here / path.name), read_state(path)
            if step and one[0] != other[0]:
                names = names or _names((one, other), steps)
                reference = {names.get(name, name): each for name, each in reference.items()}
            what = path.stem.partition("-")[0]
            nothing = {name: np.zeros_like(each) for name, each in reference.items()} if what == "gradients" else None
            yield Difference(step, what, compare(ours, reference, nothing))


def _names(runs: tuple[tuple[Path, int], tuple[Path, int]], steps: int) -> dict[str, str]:
    """Names of the first run's tensors, by those of the second; all tensors are there after the last step."""
    ours, theirs = (read_state(step_folder(*run, steps) / "state.safetensors") for run in runs)
    return renaming([*theirs, *_gradients(theirs)], [*ours, *_gradients(ours)])


def _gradients(names: Iterable[str]) -> list[str]:
    return [f"gradient:{name.removeprefix('parameter:')}" for name in names if name.startswith("parameter:")]
