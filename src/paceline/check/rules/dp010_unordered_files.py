"""Samples or modules stand in an order that can differ between ranks.

What it does:
    Follows listings of directories (`os.listdir`, `glob`, `Path.iterdir`) and sets that become the samples or labels of
    a data set, or the members of a `ModuleDict` or `ModuleList`, without being sorted.

Why is this bad:
    Ranks agree on samples by their index. The order of a listing is that of the file system, and differs between nodes.
    The order of a set of strings is random in each process. Index 7 is then another sample on each rank, so shards
    overlap; and DDP averages the gradients of parameters that do not belong together.

Repair:
    `sorted(...)`.

Fix safety:
    Safe: the order becomes the same everywhere. Results of runs with the old order differ.

Known problems:
    Values are followed through names, functions and attributes of the script. A set of integers has the same order on
    all ranks; where reading does not show what is in a set, names such as `labels` or `ids` count as integers.

References:
    F13, F46. https://docs.python.org/3/library/os.html#os.listdir
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.unordered_lists import Destination, destination, may_arrive
from paceline.check.edits import Edit
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name

_LISTINGS = ("os.listdir", "os.scandir", "glob.glob", "glob.iglob")
_PATH_METHODS = ("iterdir", "glob", "rglob")
_NUMBERS = frozenset(("labels", "label", "targets", "target", "ids", "idx", "indices", "index", "y", "users", "items"))


class UnorderedFiles(Rule):
    """Listings and sets whose order decides what ranks train on."""

    code, name, topic = "DP010", "unordered-files", "data"
    faults = ("F13", "F46")
    severity = "warning"
    fixes = True
    valid = {
        "sorted": """
            class Files(Dataset):
                def __init__(self, root):
                    self.paths = sorted(os.listdir(root))

                def __getitem__(self, index):
                    return self.paths[index]

            dist.init_process_group("gloo")
            loader = DataLoader(Files("data"))
        """,
        "sorted later": """
            class Files(Dataset):
                def __init__(self, root):
                    self.paths = []
                    for name in os.listdir(root):
                        self.paths.append(os.path.join(root, name))
                    self.paths.sort()

                def __getitem__(self, index):
                    return self.paths[index]

            dist.init_process_group("gloo")
            loader = DataLoader(Files("data"))
        """,
        "counted and looked up": """
            class Files(Dataset):
                def __init__(self, root, wanted):
                    known = set(os.listdir(root))
                    self.paths = [name for name in wanted if name in known]
                    self.classes = len(set(self.paths))

                def __getitem__(self, index):
                    return self.paths[index]

            dist.init_process_group("gloo")
            loader = DataLoader(Files("data", ["a", "b"]))
        """,
    }
    invalid = {
        "a directory": """
            class Files(Dataset):
                def __init__(self, root):
                    self.paths = [os.path.join(root, name) for name in os.listdir(root)]  # here

                def __getitem__(self, index):
                    return self.paths[index]

            dist.init_process_group("gloo")
            loader = DataLoader(Files("data"))
        """,
        "paths that a function finds": """
            from pathlib import Path

            def find(root):
                found = Path(root).rglob("*.png")  # here
                return list(found)

            class Files(Dataset):
                def __init__(self, paths):
                    self.paths = paths

                def __getitem__(self, index):
                    return self.paths[index]

            dist.init_process_group("gloo")
            paths = find("data")
            loader = DataLoader(Files(paths))
        """,
        "heads for the names in a set": """
            class Heads(nn.Module):
                def __init__(self, names):
                    super().__init__()
                    self.heads = nn.ModuleDict({name: nn.Linear(2, 1) for name in names})

            dist.init_process_group("gloo")
            model = DDP(Heads({name for name in ("wind", "rain")}))  # here
        """,
        "names without repetitions": """
            class Files(Dataset):
                def __init__(self, lists):
                    names = set()  # here
                    for each in lists:
                        names.update(each)
                    self.names = list(names)

                def __getitem__(self, index):
                    return self.names[index]

            dist.init_process_group("gloo")
            loader = DataLoader(Files([["a", "b"], ["b", "c"]]))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not may_arrive(script):
            return
        for node, name, listing in _sources(script):
            if script.where(node) is not Ranks.ALL or _agreed(script, node):
                continue
            found = destination(script, node)
            if found is None or (listing and found is Destination.MODULES):
                continue
            difference = "between nodes" if listing else "in each process"
            meaning = "sample an index means" if found is Destination.DATA else "parameters DDP reduces together"
            yield Violation(
                node,
                f"the order of {name} differs {difference}, and decides which {meaning}",
                "sort it: sorted(...)",
                faults=("F13",) if found is Destination.DATA else ("F46",),
                edits=_sorted(node) if listing or _is_listed(script, node) else (),
            )


def _sources(script: Script) -> Iterator[tuple[ast.expr, str, bool]]:
    """Listings and sets, with what to call them."""
    for site in script.calls(*_LISTINGS):
        yield site.node, f"{site.name}(...)", True
    for site in script.method_calls(*_PATH_METHODS):
        names = script.program.callee_names(site.node)
        if not any(name in _LISTINGS for name in names):
            yield site.node, f"{ast.unparse(site.node.func)}(...)", True
    for site in script.calls("builtins.set", "builtins.frozenset"):
        if not (site.node.args and _are_numbers(site.node.args[0])):
            yield site.node, "a set", False
    for function in script.program.functions:
        for node in _displays(function):
            if not _are_numbers(node):
                yield node, "a set", False


def _displays(function: Function) -> Iterator[ast.Set | ast.SetComp]:
    """Sets that are written as such, in the arguments and assignments of a function."""
    if "{" not in function.module.source.text or function.parent is not None:
        return
    for node in walk(function.node):
        if isinstance(node, ast.Set | ast.SetComp):
            yield node


def _are_numbers(node: ast.expr) -> bool:
    """True if the members are integers, as far as reading shows it."""
    match node:
        case ast.Set() | ast.List() | ast.Tuple():
            return all(_is_number(each) for each in node.elts)
        case ast.SetComp() | ast.ListComp() | ast.GeneratorExp():
            return _is_number(node.elt)
        case ast.Call():
            return last_name(node.func) in ("range", "tolist", "numpy", "arange", "unique", "randperm")
        case ast.Name() | ast.Attribute():
            return last_name(node).strip("_") in _NUMBERS or last_name(node).endswith(("labels", "ids", "targets"))
    return False


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, str | bytes)
        case ast.Call():
            return last_name(node.func) in ("int", "item", "len", "ord")
        case ast.BinOp():
            return _is_number(node.left) or _is_number(node.right)
    return False


def _agreed(script: Script, node: ast.expr) -> bool:
    """True if a collective makes the variable the same on all ranks."""
    module = script.function_of(node).module
    statement = module.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {each.id for target in targets for each in walk(target) if isinstance(each, ast.Name)}
    return any(
        isinstance(each, ast.Name) and each.id in names
        for call in script.function_of(node).calls
        if any(part in last_name(call.func) for part in ("broadcast", "all_gather", "scatter"))
        for argument in call.args
        for each in walk(argument)
    )


def _is_listed(script: Script, node: ast.expr) -> bool:
    """True if a set goes straight into a list or a call, where it can be sorted."""
    if isinstance(node, ast.Call) and not node.args:
        return False
    parent = script.function_of(node).module.parents.get(node)
    return isinstance(parent, ast.Call | ast.comprehension | ast.For)


def _sorted(node: ast.expr) -> tuple[Edit, ...]:
    start, end = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return Edit(start, start, "sorted("), Edit(end, end, ")")
