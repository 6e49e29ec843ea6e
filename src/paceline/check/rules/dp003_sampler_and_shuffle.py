"""A DataLoader is given a sampler and `shuffle=True`.

What it does:
    Looks for loaders that have a sampler or batch sampler and `shuffle=True` on the same path, also through
    dictionaries of arguments and helper functions.

Why is this bad:
    DataLoader raises "sampler option is mutually exclusive with shuffle": the script ends before its first step. The
    sampler decides the order, and DistributedSampler shuffles by default.

Repair:
    Remove `shuffle=True`, or write `shuffle=(sampler is None)` where the script also runs without a sampler.

Fix safety:
    Safe: the call raises as it stands.

Known problems:
    Loaders whose two arguments are decided by tests that reading does not follow are left out.

References:
    F04. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.branch_values import possible
from paceline.check.analyses.framework_names import DATA_LOADERS
from paceline.check.analyses.rank_shares import unknown_origin, ways
from paceline.check.analyses.script import Script
from paceline.check.edits import Edit, remove_keyword, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.conditions import conditions
from paceline.syntax.values import Argument, Literal, Object


class SamplerAndShuffle(Rule):
    """Loaders that raise because they have a sampler and shuffle."""

    code, name, topic = "DP003", "sampler-and-shuffle", "data"
    faults = ("F04",)
    severity = "error"
    fixes = True
    valid = {
        "shuffle where there is no sampler": """
            def loader_of(data, distributed):
                sampler = DistributedSampler(data) if distributed else None
                return DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None)

            dist.init_process_group("gloo")
            loader_of(Numbers(), True)
        """,
        "one function for both loaders": """
            def loader_of(data, distributed, train):
                sampler = None
                if distributed and not train:
                    sampler = DistributedSampler(data, shuffle=False)
                return DataLoader(data, batch_size=8, sampler=sampler, shuffle=train)

            dist.init_process_group("gloo")
            train, test = loader_of(Numbers(), True, True), loader_of(Numbers(), True, False)
        """,
        "arguments of two branches": """
            dist.init_process_group("gloo")
            data, options = Numbers(), {"batch_size": 8}
            if dist.get_world_size() > 1:
                options["sampler"] = DistributedSampler(data)
            else:
                options["shuffle"] = True
            loader = DataLoader(data, **options)
        """,
        "two calls of one function": """
            def loader_of(data, sampler=None, shuffle=False):
                return DataLoader(data, batch_size=8, sampler=sampler, shuffle=shuffle)

            dist.init_process_group("gloo")
            data = Numbers()
            one, other = loader_of(data, DistributedSampler(data)), loader_of(data, shuffle=True)
        """,
    }
    invalid = {
        "both in the call": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, shuffle=True, sampler=DistributedSampler(data))  # here
        """,
        "the sampler may be None": """
            dist.init_process_group("gloo")
            data, sampler = Numbers(), None
            if dist.get_world_size() > 1:
                sampler = DistributedSampler(data)
            loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)  # here
        """,
        "a dictionary of options": """
            dist.init_process_group("gloo")
            data = Numbers()
            options = {"batch_size": 8}
            if torch.cuda.is_available():
                options.update({"pin_memory": True, "shuffle": True})
            options["sampler"] = DistributedSampler(data)
            loader = DataLoader(data, **options)  # here
        """,
        "options that are merged": """
            dist.init_process_group("gloo")
            data = Numbers()
            options = {"batch_size": 8}
            options.update({"sampler": DistributedSampler(data)})
            options.update({"pin_memory": True, "shuffle": True})
            loader = DataLoader(data, **options)  # here
        """,
        "a batch sampler": """
            dist.init_process_group("gloo")
            data = Numbers()
            batches = torch.utils.data.BatchSampler(DistributedSampler(data), 8, drop_last=True)
            loader = DataLoader(data, batch_sampler=batches, shuffle=True)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for site in script.calls(*DATA_LOADERS):
            for made in ways(script, site):
                found = self._clash(script, made)
                if found is not None:
                    yield found
                    break

    def _clash(self, script: Script, made: Object) -> Violation | None:
        shuffle = script.argument(made, "shuffle", 2)
        if not shuffle.certain or possible(script, shuffle) != {Literal(True)}:
            return None
        for name, position in (("sampler", 3), ("batch_sampler", 4)):
            given = script.argument(made, name, position)
            if not _is_given(script, given) or (shuffle.may_be_absent and not _always(script, made, given)):
                continue
            return Violation(
                made.call,
                f"the loader has a {name} and shuffle=True; DataLoader raises a ValueError",
                "remove shuffle=True: the sampler decides the order",
                edits=tuple(_repair(script, made, given)),
            )
        return None


def _is_given(script: Script, argument: Argument) -> bool:
    """True if a sampler certainly is given on some path."""
    values = possible(script, argument)
    return argument.certain and not unknown_origin(script, values) and values != {Literal(None)}


def _always(script: Script, made: Object, argument: Argument) -> bool:
    """True if an argument is given on all paths.

    Also as `options["sampler"] = sampler` and `options.update({"sampler": sampler})` outside of any branch.
    """
    if not argument.may_be_absent:
        return True
    module = script.function_of(made.call).module
    around = {each.test for each in conditions(module, made.call)}
    return any(
        {condition.test for condition in conditions(module, statement)} <= around
        for each in argument.given
        if (statement := module.statement(each.node)) is not None and _sets_option(statement)
    )


def _sets_option(statement: ast.AST) -> bool:
    """True if a statement puts a value into a dictionary of options."""
    match statement:
        case ast.Assign(targets=[ast.Subscript()]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update"))):
            return True
    return False


def _repair(script: Script, made: Object, given: Argument) -> Iterator[Edit]:
    keyword = next((each for each in made.call.keywords if each.arg == "shuffle"), None)
    if keyword is None or not isinstance(keyword.value, ast.Constant):
        return
    node = given.given[0].node
    may_be_none = Literal(None) in script.program.evaluator.all_of(given.given)
    if may_be_none and isinstance(node, ast.Name) and script.function_of(node) is script.function_of(made.call):
        yield replace(keyword.value, f"({node.id} is None)")
    elif not may_be_none and (edit := remove_keyword(made.call, "shuffle")) is not None:
        yield edit
