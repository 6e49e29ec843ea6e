"""Expressions that are the number of ranks."""

from __future__ import annotations

import ast

from paceline.check.analyses.script import Script
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Context, Literal, Named, Object, Part

_WORLD_NAMES = frozenset(
    ("world_size", "world", "num_processes", "nprocs", "n_gpus", "num_gpus", "ngpus", "ngpu", "n_gpu", "num_replicas",
     "ddp_world_size", "dist_size", "n_ranks", "num_ranks", "nranks")
)  # fmt: skip


def is_world_size(script: Script, node: ast.expr, context: Context | None = None) -> bool:
    """True if an expression is the number of ranks."""
    if isinstance(node, ast.Name) and any(
        isinstance(each.node, ast.AugAssign) for each, _ in script.program.evaluator.bindings(node)
    ):
        return False  # `steps //= world_size`
    values = script.values(node, context)
    for value in values:
        match value:
            case Object(name="torch.distributed.get_world_size"):
                return True
            case Object(name="os.environ.get" | "os.getenv"):
                keys = script.program.argument_values(value, "key", 0)
                if any(isinstance(key, Literal) and key.value == "WORLD_SIZE" for key in keys):
                    return True
            case Part(base=Named(name="os.environ"), name="[WORLD_SIZE]"):
                return True
    name = last_name(node.func if isinstance(node, ast.Call) else node).lower().lstrip("_")
    if isinstance(node, ast.Call):
        return name == "get_world_size"
    return name in _WORLD_NAMES and values != {Literal(1)}
