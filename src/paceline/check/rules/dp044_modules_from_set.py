"""Layers are registered while iterating a set.

What it does:
    Looks for modules and parameters that are made in the order of a set of strings: `nn.ModuleDict` or `nn.ModuleList`
    of a comprehension, `add_module` or an item assignment in a loop.

Why is this bad:
    Python orders strings in a set by a hash that differs between processes. Ranks register the same layers in different
    orders; DDP pairs parameters by their position, so gradients of one layer are averaged with those of another.

Repair:
    Iterate `sorted(names)`.

Known problems:
    With PYTHONHASHSEED set for the job the order is the same; reading does not show that.

References:
    F46. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.model_structure import LAYERS, is_module
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import origins
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.values import ClassValue, Context, Named

_REGISTERS = ("torch.nn.ModuleDict", "torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ParameterDict",
              "torch.nn.ParameterList")  # fmt: skip
_KEEPS_ORDER = ("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.iter", "builtins.reversed")
_NET = """
            class Net(nn.Module):
                def __init__(self, names):
                    super().__init__()
                    self.heads = nn.ModuleDict({name: nn.Linear(2, 1) for name in names})LINE

                def forward(self, x):
                    return sum(head(x) for head in self.heads.values())

            dist.init_process_group("gloo")
"""


class ModulesFromSet(Rule):
    """Layers in the order of a set."""

    code, name, topic = "DP044", "modules-from-set", "wrapping"
    faults = ("F46",)
    severity = "warning"
    valid = {
        "sorted names": _NET.replace("LINE", "")
        + """
            model = DDP(Net(sorted({"a", "b"})))
        """,
        "a list": _NET.replace("LINE", "")
        + """
            model = DDP(Net(["a", "b"]))
        """,
        "a set of numbers": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.ModuleList([nn.Linear(2, width) for width in {4, 8}])

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
        "a test for members": """
            class Net(nn.Module):
                def __init__(self, names):
                    super().__init__()
                    wanted = set(names)
                    self.heads = nn.ModuleDict({name: nn.Linear(2, 1) for name in names if name in wanted})

            dist.init_process_group("gloo")
            model = DDP(Net(["a", "b"]))
        """,
    }
    invalid = {
        "a set as the argument": _NET.replace("LINE", "  # here")
        + """
            names = {name for name in ("a", "b", "c") if name != "b"}
            model = DDP(Net(names))
        """,
        "a loop over unique names": """
            class Net(nn.Module):
                def __init__(self, columns):
                    super().__init__()
                    self.embed = nn.ModuleDict()
                    for column in list(set(columns)):  # here
                        self.embed[column] = nn.Embedding(10, 2)

            dist.init_process_group("gloo")
            model = DDP(Net(["a", "b", "a"]))
        """,
        "add_module": """
            class Net(nn.Module):
                TASKS = {"a", "b"} | {"c"}

                def __init__(self):
                    super().__init__()
                    for task in self.TASKS:  # here
                        self.add_module(task, nn.Linear(2, 1))

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not (script.wrappers or script.engines) or _hash_is_fixed(script):
            return
        for site in script.calls(*_REGISTERS):
            for node in site.node.args:
                part = node.value if isinstance(node, ast.Starred) else node
                over = _iterated(part)
                if over is not None and _is_set(script, over, None):
                    yield _violation(site.node, over)
        for function in script.program.functions:
            for loop in function.loops:
                if (
                    isinstance(loop, ast.For)
                    and _registers(script, function, loop)
                    and _is_set(script, loop.iter, None)
                ):
                    yield _violation(loop, loop.iter)


def _violation(node: ast.AST, over: ast.expr) -> Violation:
    return Violation(
        node,
        f"layers are registered in the order of the set {ast.unparse(over)}, which differs between ranks",
        "iterate over sorted(...)",
    )


def _iterated(node: ast.expr) -> ast.expr | None:
    """The iterable of a comprehension."""
    if isinstance(node, ast.DictComp | ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return node.generators[0].iter
    return None


def _is_set(script: Script, node: ast.expr, context: Context | None, depth: int = 0) -> bool:
    """True if a loop goes over a set of strings, directly or as a list."""
    found = origins(script, node, context)
    return depth < 6 and bool(found) and all(_makes_set(script, each.node, each.context, depth) for each in found)


def _makes_set(script: Script, node: ast.expr, context: Context | None, depth: int) -> bool:
    match node:
        case ast.Set():
            return not all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in node.elts)
        case ast.SetComp():
            return True
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _is_set(script, node.left, context, depth + 1)
        case ast.Call():
            names = script.program.callee_names(node)
            if names in (["builtins.set"], ["builtins.frozenset"]):
                return bool(node.args) and not _of_numbers(script, node.args[0], context)
            if len(names) == 1 and names[0] in _KEEPS_ORDER and node.args:
                return _is_set(script, node.args[0], context, depth + 1)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("union", "intersection", "difference"):
                return _is_set(script, node.func.value, context, depth + 1)
    return False


def _of_numbers(script: Script, node: ast.expr, context: Context | None) -> bool:
    for each in origins(script, node, context):
        if isinstance(each.node, ast.List | ast.Tuple | ast.Set):
            if all(isinstance(item, ast.Constant) and isinstance(item.value, int) for item in each.node.elts):
                return True
        elif isinstance(each.node, ast.Call) and last_name(each.node.func) == "range":
            return True
    return False


def _registers(script: Script, function: Function, loop: ast.For) -> bool:
    """True if the body of a loop makes layers and registers them."""
    makes = registers = False
    for call in function.calls:
        if not script.loops.stands_in(call, loop):
            continue
        if last_name(call.func) in ("add_module", "register_module", "register_parameter", "append", "setattr"):
            registers = True
        for value in script.values(call.func):
            makes = makes or (isinstance(value, Named) and value.name in LAYERS)
            makes = makes or (isinstance(value, ClassValue) and is_module(script, value.cls))
    if makes and not registers:
        registers = any(
            isinstance(at, ast.Assign) and any(isinstance(each, ast.Subscript) for each in at.targets)
            for at in walk(loop)
        )
    return makes and registers


def _hash_is_fixed(script: Script) -> bool:
    return any("PYTHONHASHSEED" in module.source.text for module in script.program.imports.modules)
