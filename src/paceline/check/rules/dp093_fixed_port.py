"""The port of the job is fixed in the script.

What it does:
    Looks for a constant `MASTER_PORT`, and for `tcp://localhost:port` in `init_process_group`.

Why is this bad:
    A second job on the machine, or processes that a crash left behind, hold the port: "address already in use". With
    torchrun the constant replaces the port that torchrun has chosen.

Repair:
    `torchrun --standalone`, or `torchrun --master-port`, and `init_process_group` with `env://`.

Known problems:
    A script that starts its own processes needs some port; a free one can be taken with a socket on port 0.

References:
    F110. https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import environment_stores
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.values import Literal


class FixedPort(Rule):
    """Ports that are constants."""

    code, name, topic = "DP093", "fixed-port", "launch"
    faults = ("F110",)
    severity = "info"
    valid = {
        "from the launcher": """
            dist.init_process_group("gloo")
        """,
        "a free port": """
            import socket

            def free_port():
                with socket.socket() as found:
                    found.bind(("", 0))
                    return found.getsockname()[1]

            os.environ["MASTER_PORT"] = str(free_port())
            dist.init_process_group("gloo", rank=0, world_size=1)
        """,
        "a default": """
            os.environ.setdefault("MASTER_PORT", "29500")
            dist.init_process_group("gloo")
        """,
    }
    invalid = {
        "a variable": """
            def setup(rank, world_size):
                os.environ["MASTER_ADDR"] = "localhost"
                os.environ["MASTER_PORT"] = "12355"  # here
                dist.init_process_group("gloo", rank=rank, world_size=world_size)

            def worker(rank, world_size):
                setup(rank, world_size)

            if __name__ == "__main__":
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "a URL": """
            dist.init_process_group("gloo", init_method="tcp://127.0.0.1:23456", rank=0, world_size=1)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.starts_group:
            return
        for statement, value in environment_stores(script, "MASTER_PORT"):
            if _is_constant(script.values(value)) and script.paths.to(statement):
                yield Violation(
                    statement,
                    "MASTER_PORT is a constant, so a second job on the machine cannot start",
                    "leave the port to torchrun, or take a free one",
                )
        for module in script.program.imports.modules:
            if "tcp://" not in module.source.text:
                continue
            for node in walk(module.source.tree):
                if isinstance(node, ast.Constant) and _is_local(node.value):
                    yield Violation(
                        node,
                        f"{node.value!s} is a constant: a second job on the machine cannot start",
                        "use env:// with torchrun, or take a free port",
                    )


def _is_constant(values: frozenset[object]) -> bool:
    return bool(values) and all(
        isinstance(each, Literal) and str(each.value).isdigit() and str(each.value) != "0" for each in values
    )


def _is_local(text: object) -> bool:
    if not isinstance(text, str) or not text.startswith("tcp://"):
        return False
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    return host in ("localhost", "127.0.0.1", "0.0.0.0") and port.isdigit() and port != "0"
