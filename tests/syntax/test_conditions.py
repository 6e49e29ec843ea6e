from __future__ import annotations

import ast

import pytest

from paceline.syntax.conditions import conditions
from tests.syntax.programs import call_at, program_of

CASES = {
    "the body of an if": ("if a:\n    here()", [("a", True)]),
    "the else branch": ("if a:\n    pass\nelse:\n    here()", [("a", False)]),
    "behind a return": ("def f():\n    if a:\n        return\n    here()\nf()", [("a", False)]),
    "behind a continue": ("for i in x:\n    if a:\n        continue\n    here()", [("a", False)]),
    "behind a return in the else branch": (
        "def f():\n    if a:\n        pass\n    else:\n        return\n    here()\nf()",
        [("a", True)],
    ),
    "behind sys.exit": ("import sys\nif a:\n    sys.exit(1)\nhere()", [("a", False)]),
    "an operand of and": ("a and here()", [("a", True)]),
    "an operand of or": ("a or here()", [("a", False)]),
    "a conditional expression": ("x = here() if a else 1", [("a", True)]),
    "a comprehension": ("x = [here() for i in y if a]", [("a", True)]),
    "a while loop": ("while a:\n    here()", [("a", True)]),
    "the test itself": ("if here():\n    pass", []),
    "an outer function": ("if a:\n    def f():\n        here()\n    f()", []),
    "an if that does not leave": ("if a:\n    pass\nhere()", []),
    "nested": ("if a:\n    if b:\n        pass\n    else:\n        here()", [("b", False), ("a", True)]),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_conditions_on_the_way_to_a_call(text: str, expected: list[tuple[str, bool]]):
    """Branches, early exits and operands count; other functions do not."""
    program = program_of(text)

    found = [(ast.unparse(each.test), each.holds) for each in conditions(program.root, call_at(program, "here"))]

    assert found == expected
