"""Every rank waits for a person.

What it does:
    Looks for `input()`, `breakpoint()`, `pdb.set_trace()` and `plt.show()` that every rank of a job reaches.

Why is this bad:
    A launcher gives no terminal to the ranks: they read an end of file, or wait forever. While one rank stands in a
    debugger the others wait for it in the next collective, until the timeout ends the job.

Repair:
    Remove the call, or ask before the process group starts; `torch.distributed.breakpoint(rank=0)` stops all ranks.

Known problems:
    A call that only an error reaches, or a mode for debugging, is left out.

References:
    F92. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.breakpoint
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import local_origin
from paceline.check.analyses.process_paths import Path
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.rule import Rule, Violation
from paceline.syntax.conditions import asks_for_main, conditions
from paceline.syntax.module_index import Function

_DEBUGGERS = ("builtins.breakpoint", "pdb.set_trace", "ipdb.set_trace", "IPython.embed", "code.interact")
_WINDOWS = ("matplotlib.pyplot.show", "cv2.waitKey", "cv2.imshow", "plotly.io.show")
_QUESTIONS = ("builtins.input", "getpass.getpass")
_MODES = ("debug", "interactive", "visual", "plot", "display", "isatty", "dry_run")


class Interactive(Rule):
    """Calls that wait for a person."""

    code, name, topic = "DP073", "interactive", "control flow"
    faults = ("F92",)
    severity = "warning"
    valid = {
        "in front of the processes": """
            def worker(rank, world_size):
                dist.init_process_group("gloo", rank=rank, world_size=world_size)
                DDP(nn.Linear(2, 1))

            if __name__ == "__main__":
                if input("Overwrite? ") == "y":
                    mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "a plot that is saved": """
            import matplotlib.pyplot as plt

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                plt.plot([1, 2])
                plt.savefig("loss.png")
        """,
    }
    invalid = {
        "a breakpoint": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for step in range(10):
                model(torch.randn(4, 2)).mean().backward()
                breakpoint()  # here
        """,
        "a plot on the screen and a question": """
            import matplotlib.pyplot as plt

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                plt.plot([1, 2])
                plt.show()  # here
                if input("Continue? ") == "n":  # here
                    return

            main()
        """,
        "a debugger for a loss that is not finite": """
            import pdb

            dist.init_process_group("nccl")
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            model = DDP(nn.Linear(2, 1).to(device))
            data = Numbers()
            for x, y in DataLoader(data, sampler=DistributedSampler(data)):
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                if torch.isnan(loss):
                    pdb.set_trace()  # here
                loss.backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.starts_group and not script.wrappers:
            return
        for callees, does in (
            (_DEBUGGERS, "stops every rank in a debugger"),
            (_WINDOWS, "opens a window on every rank and waits for it"),
            (_QUESTIONS, "asks a question on every rank"),
        ):
            for site in script.calls(*callees):
                if _everywhere(script, site.node):
                    yield Violation(
                        site.node,
                        f"{ast.unparse(site.node.func)} {does}; no terminal answers, and ranks wait for each other",
                        "remove the call, or make it before the processes start",
                    )


def _everywhere(script: Script, node: ast.Call) -> bool:
    if script.where(node) is not Ranks.ALL:
        return False
    for path in script.paths.to(node):
        if path.everywhere or (path.ranks is Ranks.ALL and not path.in_turns and _data_decide(script, path)):
            return not any(_is_asked_for(frame.function, frame.node) for frame in path.frames)
    return False


def _data_decide(script: Script, path: Path) -> bool:
    """True if the batches of a rank alone decide that it comes there: `if loss.isnan():`."""
    tests = [each.test for at in path.frames for each in conditions(at.function.module, at.node)]
    origins = [local_origin(script, each) for each in tests if not asks_for_main(each)]
    return bool(origins) and all(each is not None and each.cause is Cause.DATA for each in origins)


def _is_asked_for(function: Function, node: ast.AST) -> bool:
    """True if a node runs only in a mode that somebody chose: `if args.debug`."""
    return any(
        any(part in ast.unparse(each.test).lower() for part in _MODES) for each in conditions(function.module, node)
    )
