from __future__ import annotations

import ast
import contextlib
import random

import pytest

from paceline.syntax.reaching_definitions import ReachingDefinitions
from tests.syntax.programs import program_of


class RandomProgram:
    """A function of assignments `x = <unique number>` and uses in nested branches and loops, which can be executed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = 0
        self.text = "\n".join(["def run(flip, log, stop):", "    a = b = 0", *self.block(1), "    log(-1, a)"])

    def number(self) -> int:
        """The next unique number."""
        self.numbers += 1
        return self.numbers

    def block(self, depth: int) -> list[str]:
        """Random statements, indented."""
        pad = "    " * depth
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            name = self.random.choice("ab")
            kind = self.random.choice(
                ["assign", "use", "use"] if depth > 3 else ["assign", "use", "use", "if", "for", "while", "try", "with"]
            )
            if kind == "assign":
                lines.append(f"{pad}{name} = {self.number()}")
            elif kind == "use":
                lines.append(f"{pad}log({self.number()}, {name})")
            elif kind == "if":
                lines += [f"{pad}if flip():", *self.block(depth + 1)]
                if self.random.random() < 0.5:
                    lines += [f"{pad}else:", *self.block(depth + 1)]
            elif kind == "for":
                lines += [f"{pad}for {name} in (-5, -6):", *self.block(depth + 1)]
                if self.random.random() < 0.5:
                    lines.append(f"{pad}    " + self.random.choice(["break", "continue", "if flip(): break"]))
            elif kind == "while":
                lines += [f"{pad}while flip():", *self.block(depth + 1), f"{pad}    stop()"]
            elif kind == "try":
                lines += [f"{pad}try:", *self.block(depth + 1), f"{pad}    if flip(): raise KeyError"]
                lines += [f"{pad}except KeyError:", *self.block(depth + 1)]
                if self.random.random() < 0.5:
                    lines += [f"{pad}finally:", *self.block(depth + 1)]
            else:
                lines += [f"{pad}if flip():", f"{pad}    return", *self.block(depth)]
        return lines


class StoppedError(Exception):
    """Ends a program that loops for long."""


def run_at_random(text: str, seed: str) -> list[tuple[int, int]]:
    """Uses and the values that one run with random branches finds there."""
    flips, found, rounds = random.Random(seed), [], iter(range(20))

    def stop() -> None:
        if next(rounds, None) is None:
            raise StoppedError

    namespace: dict[str, object] = {}
    exec(text, namespace)
    with contextlib.suppress(StoppedError):
        namespace["run"](lambda: flips.random() < 0.5, lambda use, value: found.append((use, value)), stop)
    return found


@pytest.mark.parametrize("seed", range(100))
def test_the_binding_that_a_run_finds_is_among_those_that_reach_the_use(seed: int):
    """Reference: executing the program with random branches."""
    program = RandomProgram(seed)
    found = [each for run in range(25) for each in run_at_random(program.text, f"{seed} {run}")]

    module = program_of(program.text).root
    function = next(each for each in module.functions if each.name == "run")
    uses = ReachingDefinitions(function).uses
    reaching: dict[int, set[int]] = {}
    for call in module.calls_by_name["log"]:
        number, name = ast.literal_eval(call.args[0]), call.args[1]
        assert isinstance(name, ast.Name)
        values = {ast.literal_eval(each.value) for each in uses.get(name, ()) if each.value is not None}
        reaching[number] = {part for value in values for part in (value if isinstance(value, tuple) else (value,))}
    assert [(use, value) for use, value in found if value not in reaching[use]] == []


def test_a_rebinding_hides_what_was_bound_before():
    """Only the last of two assignments in a row reaches the use."""
    program = program_of("""
        x = 1
        x = 2
        show(x)
    """)
    name = program.root.calls_by_name["show"][0].args[0]

    (binding,) = ReachingDefinitions(program.root.body).uses[name]

    assert binding.value.value == 2
