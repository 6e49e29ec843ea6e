"""All ranks wait while rank 0 does work that may take longer than the timeout.

What it does:
    Looks for long work (downloads, subprocesses, preprocessing of a data set) under a test for rank 0 that is followed
    by a barrier or another collective, in a process group with the default timeout (`info`) or a short one
    (`warning`).

Why is this bad:
    The other ranks wait in the collective. When the timeout of the process group ends (10 minutes with NCCL), they
    fail, and the job ends although nothing is wrong.

Repair:
    Do the work before `init_process_group`, or give it a timeout that covers the work.

Known problems:
    Names decide that work is long. Reading shows no durations.

References:
    F86. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import collective_within
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name

_SHORT_S = 120
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
_LONG = frozenset(
    ("urlretrieve", "snapshot_download", "load_dataset", "download_url", "download_and_prepare", "check_call",
     "check_output", "Popen", "sleep", "download_and_extract_archive", "prepare_data", "preprocess",
     "tokenize_dataset", "build_vocab")
)  # fmt: skip
_UNBOUNDED = _LONG - {"sleep"}


class WaitingForOneRank(Rule):
    """Long work of rank 0 in front of a collective."""

    code, name, topic = "DP071", "waiting-for-one-rank", "control flow"
    faults = ("F86",)
    severity = "info"
    valid = {
        "a timeout that covers the work": """
            from datetime import timedelta
            from urllib.request import urlretrieve

            dist.init_process_group("gloo", timeout=timedelta(hours=3))
            if dist.get_rank() == 0:
                urlretrieve("https://example.org/data.zip", "data.zip")
            dist.barrier()
        """,
        "in front of the process group": """
            from urllib.request import urlretrieve

            if int(os.environ["RANK"]) == 0:
                urlretrieve("https://example.org/data.zip", "data.zip")
            dist.init_process_group("gloo")
            dist.barrier()
        """,
        "a checkpoint": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "model.pt")
            dist.barrier()
        """,
    }
    invalid = {
        "a download": """
            from urllib.request import urlretrieve

            def fetch():
                urlretrieve("https://example.org/data.zip", "data.zip")

            dist.init_process_group("nccl")
            if dist.get_rank() == 0:  # here
                fetch()
            dist.barrier()
        """,
        "features within three seconds": """
            from datetime import timedelta

            def extract():
                rows = []
                for index in range(100):
                    time.sleep(0.1)
                    rows.append(index)
                return torch.tensor(rows)

            def main():
                dist.init_process_group("gloo", timeout=timedelta(seconds=3))
                if dist.get_rank() == 0:  # here
                    torch.save(extract(), "features.pt")
                dist.barrier()

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        timeout = _timeout(script)
        if timeout is None or (timeout > _SHORT_S and timeout != _DEFAULT):
            return
        short = timeout <= _SHORT_S
        for function in script.program.functions:
            for node in walk(function.node) if function.calls else ():
                if not isinstance(node, ast.If) or script.function_of(node) is not function:
                    continue
                if script.ranks.test(node.test) not in (Ranks.ZERO, Ranks.LOCAL_ZERO):
                    continue
                work = _long_work(script, node, _LONG if short else _UNBOUNDED, short=short)
                if work is not None and _waits(script, function, node) and not _before_group(script, function, node):
                    yield _violation(node, work, timeout)


_DEFAULT = -1.0


def _violation(node: ast.If, work: ast.Call, timeout: float) -> Violation:
    limit = f"the timeout of {timeout:g} s" if timeout != _DEFAULT else "the default timeout (10 minutes with NCCL)"
    return Violation(
        node,
        f"the other ranks wait while rank 0 runs {ast.unparse(work.func)}; they fail after {limit}",
        "do this work before init_process_group, or pass a timeout that covers it",
        severity="warning" if timeout != _DEFAULT else None,
        evidence={"work_line": work.lineno},
    )


def _timeout(script: Script) -> float | None:
    """Seconds until a collective fails; `_DEFAULT` if none is given, None if it cannot be read."""
    found = [script.argument(site.node, "timeout", 2) for site in script.calls("torch.distributed.init_process_group")]
    if not found or not all(each.certain for each in found):
        return None
    if all(each.absent for each in found):
        return _DEFAULT
    seconds = [_seconds(script, located.node) for each in found for located in each.given]
    known = [each for each in seconds if each is not None]
    return min(known) if len(known) == len(seconds) else None


def _seconds(script: Script, node: ast.expr) -> float | None:
    """Seconds of `timedelta(minutes=30)`."""
    for value in script.values(node):
        call = getattr(value, "call", None)
        if isinstance(call, ast.Call) and last_name(call.func) == "timedelta" and not call.args:
            total = 0.0
            for keyword in call.keywords:
                numbers = script.literals(call, keyword.arg or "")
                if keyword.arg not in _SECONDS or not numbers or len(numbers) != 1:
                    return None
                (number,) = numbers
                if not isinstance(number, int | float):
                    return None
                total += number * _SECONDS[keyword.arg]
            return total
    return None


def _long_work(script: Script, node: ast.If, long: frozenset[str], *, short: bool) -> ast.Call | None:
    function = script.function_of(node)
    for statement in node.body:
        for each in script.loops.reached_calls(statement, function):
            assert isinstance(each.node, ast.Call)
            if last_name(each.node.func) in long and (short or not script.program.evaluator.callees(each.node)):
                return each.node
    return None


def _waits(script: Script, function: Function, node: ast.If) -> bool:
    """True if a collective of all ranks follows in the block of the branch."""
    parent = function.module.parents[node]
    for block in (getattr(parent, "body", []), getattr(parent, "orelse", [])):
        if isinstance(block, list) and node in block:
            return any(collective_within(script, each) for each in block[block.index(node) + 1 :][:6])
    return False


def _before_group(script: Script, function: Function, node: ast.If) -> bool:
    """True if the process group starts later in the same function."""
    return any(
        site.function is function and site.node.lineno > node.lineno
        for site in script.calls("torch.distributed.init_process_group")
    )
