"""Mutations of the zoo's scripts must never make the engine or a rule fail: `python -m tests.check.fuzz`.

Each mutation is made from its number alone, so that one that fails can be made again:
`--first 1234 --mutations 1 --show`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from paceline.check.catalog import RULES
from paceline.check.file_check import FileChecker
from paceline.syntax.source_files import Source, parse

ZOO = Path(__file__).parents[1] / "zoo"
SCRIPTS = sorted([*(ZOO / "faulty").glob("*.py"), *(ZOO / "correct").glob("*.py")])
_BODIES = ("body", "orelse", "finalbody")
_CONSTANTS = (None, True, False, 0, 1, -1, 2.5, "", "nccl", "cuda:0", b"x", ...)

Mutation = Callable[[ast.Module, random.Random], None]


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """All lists of statements that hold any."""
    found = []
    for node in ast.walk(tree):
        for name in _BODIES:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                found.append(block)
    return found


def delete_statement(tree: ast.Module, random_: random.Random) -> None:
    """Put `pass` in the place of a statement."""
    block = random_.choice(_blocks(tree))
    block[random_.randrange(len(block))] = ast.Pass()


def duplicate_statement(tree: ast.Module, random_: random.Random) -> None:
    """Copy a statement to the beginning of its block, or of another one."""
    block = random_.choice(_blocks(tree))
    at = random_.randrange(len(block))
    random_.choice([block, random_.choice(_blocks(tree))]).insert(0, copy.deepcopy(block[at]))


def swap_statements(tree: ast.Module, random_: random.Random) -> None:
    """Exchange two statements anywhere."""
    one, other = random_.choice(_blocks(tree)), random_.choice(_blocks(tree))
    at, there = random_.randrange(len(one)), random_.randrange(len(other))
    one[at], other[there] = copy.deepcopy(other[there]), copy.deepcopy(one[at])


def wrap_statement(tree: ast.Module, random_: random.Random) -> None:
    """Put a statement into a branch, a loop, a `try`, a function, a class or a `match`."""
    block = random_.choice(_blocks(tree))
    at = random_.randrange(len(block))
    inner = [block[at]]
    test = random_.choice(["dist.get_rank() == 0", "rank", "not x", "args.flag and y > 1"])
    template = random_.choice(
        [
            f"if {test}: pass",
            f"while {test}: pass",
            "for i, (a, *b) in enumerate(z): pass",
            "try: pass\nexcept Exception as error: raise",
            "with torch.no_grad() as c, open(f): pass",
            "def made(*args, key=None, **kwargs): pass",
            "class Made(nn.Module): pass",
            "match v:\n    case [1, *_]: pass",
            "async def main(): pass",
        ]
    )
    wrapper = ast.parse(template).body[0]
    holder = wrapper.cases[0] if isinstance(wrapper, ast.Match) else wrapper
    holder.body = inner  # type: ignore[attr-defined]
    block[at] = wrapper


def rename_name(tree: ast.Module, random_: random.Random) -> None:
    """Give one name, or all of its uses, another name."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    one = random_.choice(names)
    new = random_.choice([random_.choice(names).id, "renamed"])
    if random_.random() < 0.5:
        one.id = new
        return
    old = one.id
    for node in names:
        if node.id == old:
            node.id = new


def drop_argument(tree: ast.Module, random_: random.Random) -> None:
    """Remove an argument of a call."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and (node.args or node.keywords)]
    call = random_.choice(calls)
    arguments = random_.choice([each for each in (call.args, call.keywords) if each])
    del arguments[random_.randrange(len(arguments))]


def star_arguments(tree: ast.Module, random_: random.Random) -> None:
    """Replace arguments by `*args` or `**options`."""
    call = random_.choice([node for node in ast.walk(tree) if isinstance(node, ast.Call)])
    if random_.random() < 0.5:
        call.args = [ast.Starred(ast.Name("args", ast.Load()), ast.Load())]
    else:
        call.keywords = [ast.keyword(None, ast.Name("options", ast.Load()))]


def change_constant(tree: ast.Module, random_: random.Random) -> None:
    """Replace a constant by one of another type."""
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    random_.choice(constants).value = random_.choice(_CONSTANTS)


def exchange_expressions(tree: ast.Module, random_: random.Random) -> None:
    """Exchange two expressions anywhere."""
    places = [
        (node, name)
        for node in ast.walk(tree)
        for name in ("value", "test", "iter", "func", "left", "slice")
        if isinstance(getattr(node, name, None), ast.expr)
    ]
    (one, name), (other, there) = random_.choice(places), random_.choice(places)
    mine, theirs = copy.deepcopy(getattr(one, name)), copy.deepcopy(getattr(other, there))
    setattr(one, name, theirs)
    setattr(other, there, mine)


def change_target(tree: ast.Module, random_: random.Random) -> None:
    """Assign a value to tuples, attributes and items."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    if assigned:
        text = random_.choice(["a, *b = x", "a.b.c = x", "a[0] = x", "(a, (b, c)) = x", "a = b = x"])
        made = ast.parse(text).body[0]
        assert isinstance(made, ast.Assign)
        random_.choice(assigned).targets = made.targets


MUTATIONS: tuple[Mutation, ...] = (
    delete_statement, duplicate_statement, swap_statements, wrap_statement, rename_name, drop_argument, star_arguments,
    change_constant, exchange_expressions, change_target,
)  # fmt: skip


def mutated(number: int) -> tuple[str, str]:
    """The script and the text of a mutation: one to six changes, after which it compiles."""
    random_ = random.Random(number)
    while True:
        script = random_.choice(SCRIPTS)
        tree = ast.parse(script.read_text())
        for _ in range(random_.randint(1, 6)):
            random_.choice(MUTATIONS)(tree, random_)
        try:
            text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            ast.parse(text)
        except (SyntaxError, ValueError, TypeError, AttributeError, IndexError):
            continue
        return script.stem, text


def failure(number: int) -> str | None:
    """What went wrong with a mutation; None if nothing did."""
    name, text = mutated(number)
    source = parse(Path(f"/nowhere/{name}.py"), text.encode())
    if not isinstance(source, Source):
        return f"{number} {name}: {source.reason}"
    check = FileChecker(RULES).check_source(source)
    if check.state == "unreadable":
        return f"{number} {name}: {check.reason}"
    failed = [each.finding.message for each in check.found if each.finding.code == "DP000"]
    return f"{number} {name}: {'; '.join(failed)}" if failed else None


def failures(numbers: Iterable[int], workers: int) -> Iterator[str]:
    """What went wrong with each of many mutations."""
    if workers == 1:
        yield from filter(None, map(failure, numbers))
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from filter(None, pool.map(failure, numbers, chunksize=20))


def main() -> int:
    """Try many mutations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the text of the first mutation")
    given = parser.parse_args()
    if given.show:
        sys.stdout.write(mutated(given.first)[1])
    started, count = time.monotonic(), 0
    for text in failures(range(given.first, given.first + given.mutations), given.workers):
        count += 1
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{given.mutations} mutations, {count} failed, {time.monotonic() - started:.0f} s\n")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())
