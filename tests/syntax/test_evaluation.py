from __future__ import annotations

from pathlib import Path

import pytest

from paceline.syntax import call_arguments
from tests.syntax.programs import call_at, program_of, shown

CASES = {
    "an alias of a module": ("import torch.nn as N; show(N.Linear(1, 2), 'x')", {"Linear()"}),
    "one name for what torch offers under two": (
        "from torch.nn.parallel.distributed import DistributedDataParallel as D; show(D, 'x')",
        {"torch.nn.parallel.DistributedDataParallel"},
    ),
    "both branches": ("x = 1 if flag() else 2\nshow(x, 'x')", {"1", "2"}),
    "the last assignment": ("x = 1\nx = 2\nshow(x, 'x')", {"2"}),
    "a tuple that a function returns": (
        "def pair():\n    return 1, 'two'\na, b = pair()\nshow(b, 'x')",
        {"'two'"},
    ),
    "nested tuples": ("(a, (b, c)), d = (1, (2, 3)), 4\nshow(c, 'x')", {"3"}),
    "a key of a dictionary": ("d = dict(a=1)\nshow(d.get('a', 2), 'x')", {"1"}),
    "the default of a key that is missing": ("d = dict(a=1)\nshow(d.get('b', 2), 'x')", {"2"}),
    "an attribute that the constructor is given": (
        "class A:\n    def __init__(self, n):\n        self.n = n\nshow(A(7).n, 'x')",
        {"7"},
    ),
    "an attribute of a base class": (
        "class A:\n    def __init__(self):\n        self.n = 7\nclass B(A):\n    pass\nshow(B().n, 'x')",
        {"7"},
    ),
    "an attribute set from outside": (
        "class A:\n    pass\na = A()\na.n = 3\nshow(a.n, 'x')",
        {"3"},
    ),
    "a property": (
        "class A:\n    @property\n    def n(self):\n        return 5\nshow(A().n, 'x')",
        {"5"},
    ),
    "a method": ("class A:\n    def n(self, k):\n        return k\nshow(A().n(4), 'x')", {"4"}),
    "each call of a function by itself": (
        "def same(v):\n    return v\na, b = same(1), same(2)\nshow(a, 'x')",
        {"1"},
    ),
    "an argument by default": ("def f(v=9):\n    return v\nshow(f(), 'x')", {"9"}),
    "a global that a function sets": (
        "m = None\ndef make():\n    global m\n    m = 6\nmake()\ndef use():\n    show(m, 'x')",
        {"None", "6"},
    ),
    "a closure": ("def outer(v):\n    def inner():\n        return v\n    return inner()\nshow(outer(8), 'x')", {"8"}),
    "a parameter without callers": ("def f(v):\n    show(v, 'x')", {"<v>"}),
    "a parameter of all callers": ("def f(v):\n    show(v, 'x')\nf(1)\nf(v=2)", {"1", "2"}),
    "a function that is started in processes": (
        "import torch.multiprocessing as mp\ndef work(rank, n):\n    show(n, 'x')\nmp.spawn(work, args=(3,), nprocs=3)",
        {"3"},
    ),
    "a model moved to a device": (
        "from torch import nn\nmodel = nn.Linear(1, 1).to('cuda').train()\nshow(model, 'x')",
        {"Linear()"},
    ),
    "an entry of a dictionary": ("d = {'a': 1}\nshow(d['a'], 'x')", {"1"}),
    "an entry that is set later": ("d = dict(a=1)\nd['b'] = 2\nshow(d['b'], 'x')", {"2"}),
    "an assigned attribute of an unknown object": (
        "args = parse()\nargs.rank = 4\ndef f(args):\n    show(args.rank, 'x')",
        {"4", "<args>.rank"},
    ),
    "getattr": ("class A:\n    def __init__(self):\n        self.n = 7\nshow(getattr(A(), 'n'), 'x')", {"7"}),
    "a recursive function": ("def f(n):\n    return 1 if n == 0 else f(n - 1)\nshow(f(3), 'x')", {"1"}),
    "partial application": (
        "from functools import partial\ndef f(a):\n    return 2\nshow(partial(f, 1)(), 'x')",
        {"2"},
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_values_follow(text: str, expected: set[str]):
    """A value is followed through names, attributes, arguments, returns and containers."""
    assert shown(program_of(text), "x") == expected


def test_values_do_not_depend_on_the_order_of_questions():
    """A recursion that is entered at either end gives the same values."""
    text = "\n".join(
        [
            "def a(n):\n    return b(n) if n else 1",
            "def b(n):\n    return a(n) if n else 2",
            "show(a(1), 'a')",
            "show(b(1), 'b')",
        ]
    )
    first, second = program_of(text), program_of(text)

    forth = shown(first, "a"), shown(first, "b")
    back = shown(second, "b"), shown(second, "a")

    assert forth == back[::-1] == ({"1", "2"}, {"1", "2"})


def test_values_follow_imports_of_other_files(tmp_path: Path):
    """Functions of packages beside the script are found, through their `__init__` as well."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from .loaders import make\n")
    (tmp_path / "parts" / "loaders.py").write_text(
        "from torch.utils.data import DataLoader\ndef make(data):\n    return DataLoader(data)\n"
    )
    script = tmp_path / "train.py"
    text = "from parts import make\nimport parts.loaders as loaders\nshow(make(1), 'a')\nshow(loaders.make(2), 'b')\n"

    program = program_of(text, script)

    assert shown(program, "a") == shown(program, "b") == {"DataLoader()"}
    assert [module.source.path.name for module in program.imports.modules] == ["train.py", "__init__.py", "loaders.py"]


ARGUMENTS = {
    "a keyword": ("f(1, b=2)", ("2", True)),
    "by position": ("f(1, 2)", ("2", True)),
    "absent": ("f(1)", (None, True)),
    "a dictionary": ("f(1, **{'b': 2})", ("2", True)),
    "a dictionary without it": ("d = {'a': 1}\nf(1, **d)", (None, True)),
    "a dictionary that is updated": ("d = {}\nd.update(b=2)\nf(1, **d)", ("2", True)),
    "a dictionary that is updated from another one": ("d = {}\nd.update({'b': 2})\nf(1, **d)", ("2", True)),
    "an entry that is set": ("d = {}\nd['b'] = 2\nf(1, **d)", ("2", True)),
    "an unknown dictionary": ("f(1, **options)", (None, False)),
    "a list of arguments": ("f(*[1, 2])", ("2", True)),
    "an unknown list": ("f(*rest)", (None, False)),
    "keywords that are handed on": ("def g(**rest):\n    f(1, **rest)\n", (None, False)),
}


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_found(text: str, expected: tuple[str | None, bool]):
    """An argument is found by keyword, by position, and in dictionaries and lists that are expanded."""
    program = program_of(text)

    found = call_arguments.argument(program.evaluator, call_at(program, "f"), "b", 1)

    given = [each.node.value for each in found.given]
    assert (str(given[0]) if given else None, found.certain) == expected
