"""Each process becomes a job of its own.

What it does:
    Looks for `init_process_group` with a world size that falls back to 1, from `os.environ.get(..., 1)`, where the
    script names a meeting point of its own as well. Also for `rank=0, world_size=1` in code that tests the rank or
    splits data.

Why is this bad:
    If the launcher does not pass the variable on, each of N processes trains alone on the whole data and believes that
    it is rank 0. Nothing fails; the last one that writes the checkpoint wins.

Repair:
    Read the variables without a default: `int(os.environ["WORLD_SIZE"])`.

Known problems:
    With `env://` and no address in the script the start fails by itself, and nothing is reported.

References:
    F128, F108. https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import environment_stores
from paceline.check.analyses.framework_names import DISTRIBUTED_SAMPLERS
from paceline.check.analyses.process_paths import of_several_processes
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import Context, Literal, Object

_SIZES = frozenset({"WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "NPROCS"})
_GETTERS = ("os.environ.get", "os.getenv")


class LaunchDefaults(Rule):
    """World sizes that fall back to 1."""

    code, name, topic = "DP091", "launch-defaults", "launch"
    faults = ("F128", "F108")
    severity = "warning"
    valid = {
        "no default": """
            rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
            dist.init_process_group("gloo", init_method="file:///shared/rendezvous", rank=rank, world_size=world)
        """,
        "the start fails without a launcher": """
            world = int(os.environ.get("WORLD_SIZE", 1))
            dist.init_process_group("gloo", rank=int(os.environ.get("RANK", 0)), world_size=world)
        """,
        "one process goes another way": """
            world = int(os.environ.get("WORLD_SIZE", 1))
            if world > 1:
                dist.init_process_group("gloo", init_method="tcp://10.0.0.1:29500",
                                        rank=int(os.environ.get("RANK", 0)), world_size=world)
        """,
        "a group of one process, to try something": """
            dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1)
            model = DDP(nn.Linear(2, 1))
        """,
        "a function for a single process": """
            def run_single_process():
                dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1)
                data = Numbers()
                loader = DataLoader(data, sampler=DistributedSampler(data))
                if dist.get_rank() == 0:
                    print(len(loader))

            run_single_process()
        """,
    }
    invalid = {
        "variables of Slurm": """
            def init():
                rank = int(os.environ.get("SLURM_PROCID", 0))
                world = int(os.environ.get("SLURM_NTASKS", 1))  # here
                dist.init_process_group("gloo", init_method="file:///tmp/rendezvous", rank=rank, world_size=world)
                return rank, world

            rank, world = init()
        """,
        "an address in the script": """
            def main():
                os.environ["MASTER_ADDR"] = "localhost"
                os.environ["MASTER_PORT"] = "29500"
                dist.init_process_group("gloo", rank=int(os.getenv("RANK", "0")),
                                        world_size=int(os.getenv("WORLD_SIZE", "1")))  # here

            main()
        """,
        "constants": """
            os.environ["MASTER_ADDR"] = "localhost"
            dist.init_process_group("gloo", rank=0, world_size=1)  # here
            data = Numbers()
            loader = DataLoader(data, sampler=DistributedSampler(data))
            if dist.get_rank() == 0:
                print(len(loader))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        for site in script.calls("torch.distributed.init_process_group"):
            path = script.paths.everywhere(site.node)
            size = given(site.node, "world_size", 3)
            if path is None or size is None or not _meets_anyway(script, site):
                continue
            tests = [each.test for at in path.frames for each in conditions(at.function.module, at.node)]
            if script.paths.starts_processes or any(of_several_processes(each) for each in tests):
                continue
            fallback = _fallback(script, size, path.context)
            if fallback is not None:
                yield Violation(
                    fallback,
                    f"the world size falls back to 1 in {ast.unparse(fallback)}; without the variable each process"
                    " trains alone, as rank 0",
                    "read the variable without a default, so that a wrong launch fails",
                )
            elif _is_alone(script, site) and _is_meant_for_several(script) and "single" not in site.function.name:
                yield Violation(
                    site.node,
                    "each process makes a group of its own: rank 0 of 1; several processes all train alone",
                    "take rank and world_size from the launcher: dist.init_process_group() with env://",
                    severity="info",
                )


def _meets_anyway(script: Script, site: CallSite) -> bool:
    """True if the processes find a meeting point without a launcher."""
    if any(True for _ in environment_stores(script, "MASTER_ADDR", "MASTER_PORT")):
        return True
    if any(
        isinstance(value, Literal) and value.value in ("MASTER_ADDR", "MASTER_PORT")
        for call in script.calls("os.environ.setdefault")
        for value in script.program.argument_values(call.node, "key", 0)
    ):
        return True
    if script.argument(site.node, "store", 5).given:
        return True
    method = given(site.node, "init_method", 1)
    if method is None:
        return False
    return not any(isinstance(each, Literal) and each.value in ("env://", None) for each in script.values(method))


def _fallback(script: Script, size: ast.expr, context: Context | None) -> ast.expr | None:
    """The call that reads a variable with the default 1."""
    for each in script.origins.of(size, context):
        if not isinstance(each.node, ast.Call):
            continue
        for value in script.values(each.node, each.context):
            if isinstance(value, Object) and value.name in _GETTERS and value.call is each.node:
                keys = script.literals(value, "key", 0) or set()
                defaults = script.literals(value, "default", 1) or set()
                if keys & _SIZES and {str(default) for default in defaults} == {"1"}:
                    return each.node
    return None


def _is_alone(script: Script, site: CallSite) -> bool:
    size, rank = script.literals(site.node, "world_size", 3), script.literals(site.node, "rank", 4)
    return size == {1} and rank == {0}


def _is_meant_for_several(script: Script) -> bool:
    """True if the script splits data and tests the rank."""
    samplers = any(True for _ in script.calls(*DISTRIBUTED_SAMPLERS))
    tests = any(True for _ in script.calls("torch.distributed.get_rank"))
    return (
        samplers
        and tests
        and not any(
            last_name(call.func).startswith("test_") for function in script.program.functions for call in function.calls
        )
    )
