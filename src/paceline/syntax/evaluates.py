"""The interface of the evaluator for its parts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Protocol

from paceline.syntax.module_index import Function
from paceline.syntax.values import Context, Located, Value, Values


class Evaluates(Protocol):
    """Evaluates expressions; `paceline.syntax.evaluation.Evaluator` does."""

    def values(self, node: ast.AST | None, context: Context | None = None) -> Values:
        """Values that an expression can have."""

    def all_of(self, nodes: Iterable[Located]) -> Values:
        """The union over expressions."""

    def follow(self, values: Values, path: tuple[int, ...]) -> Values:
        """Items of items, by indices."""

    def returned(self, function: Function, context: Context | None) -> Values:
        """Values that a function returns."""

    def context(
        self, function: Function, call: ast.Call | None, outer: Context | None, receiver: Value | None = None
    ) -> Context | None:
        """The context of a call."""

    def depth(self) -> int:
        """Number of expressions that are being evaluated."""

    def cut_short(self, depth: int) -> None:
        """Do not keep results of expressions deeper than this: they lack what is being computed."""

    def completely(self, ask: Callable[[], bool]) -> tuple[bool, bool]:
        """The answer to a question about values, and whether it lacks nothing that is being computed."""
