"""Which ranks reach a call, on all the ways that lead there from the start of a script."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from paceline.check.analyses.process_paths import runs_before
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.syntax.program import Program
from paceline.syntax.source_files import Source, parse
from tests.check.rule_cases import script_of

EVERYWHERE = {
    "the body of the script": "target()",
    "a main function": """
        def main():
            target()

        if __name__ == "__main__":
            main()
    """,
    "a method of an object": """
        class Trainer:
            def fit(self):
                self.save()

            def save(self):
                target()

        Trainer().fit()
    """,
    "an object that is called": """
        class Stopper:
            def __call__(self, loss):
                target()

        stopper = Stopper()
        stopper(1.0)
    """,
    "workers that mp.spawn starts": """
        def worker(rank):
            target()

        if __name__ == "__main__":
            mp.spawn(worker, nprocs=2)
    """,
    "a test that holds in a distributed run": """
        args = argparse.ArgumentParser().parse_args()
        if args.distributed:
            target()
    """,
    "one guarded caller and one that is not": """
        def save():
            target()

        if dist.get_rank() == 0:
            save()
        save()
    """,
}
NOT_EVERYWHERE = {
    "a function without callers": """
        def save():
            target()
    """,
    "rank 0": """
        if dist.get_rank() == 0:
            target()
    """,
    "a guard in the caller": """
        def save():
            target()

        if dist.get_rank() == 0:
            save()
    """,
    "an early return": """
        def save():
            if dist.get_rank() != 0:
                return
            target()

        save()
    """,
    "a flag that the constructor is given": """
        class Saver:
            def __init__(self, enabled):
                self.enabled = enabled

            def save(self):
                if self.enabled:
                    target()

        Saver(dist.get_rank() == 0).save()
    """,
    "a path that is set on rank 0 only": """
        out = None
        if dist.get_rank() == 0:
            out = "out"
        if out is not None:
            target()
    """,
    "the process that starts the others": """
        def worker(rank):
            pass

        if __name__ == "__main__":
            target()
            mp.spawn(worker, nprocs=2)
    """,
    "a run in one process": """
        args = argparse.ArgumentParser().parse_args()
        if not args.distributed:
            target()
    """,
    "ranks in turns": """
        rank = dist.get_rank()
        if rank != 0:
            dist.barrier()
        target()
        if rank == 0:
            dist.barrier()
    """,
    "a handler of an exception": """
        try:
            pass
        except RuntimeError:
            target()
    """,
    "an argument that is False": """
        def build(download=False):
            if download:
                target()

        build()
    """,
}


def _target(case: str):
    script = script_of("def target():\n    pass\n" + "\n" + textwrap.dedent(case))
    calls = [call for function in script.program.functions for call in function.calls]
    return script, next(call for call in calls if getattr(call.func, "id", "") == "target")


@pytest.mark.parametrize("case", EVERYWHERE.values(), ids=EVERYWHERE.keys())
def test_all_ranks_reach_a_call(case: str):
    """Each of these ways leads all ranks to the call at the same time."""
    script, call = _target(case)

    assert script.paths.everywhere(call) is not None


@pytest.mark.parametrize("case", NOT_EVERYWHERE.values(), ids=NOT_EVERYWHERE.keys())
def test_some_ranks_do_not_reach_a_call_or_not_at_the_same_time(case: str):
    """Reading does not show that all ranks run the call at the same time."""
    script, call = _target(case)

    assert script.paths.everywhere(call) is None


def test_a_path_tells_the_ranks_that_take_it():
    """A guard in a helper counts for what the helper calls."""
    script, call = _target(NOT_EVERYWHERE["an early return"])

    (path,) = script.paths.to(call)

    assert path.ranks is Ranks.ZERO


def test_arguments_run_before_the_call_that_they_are_for():
    """`Trainer(Env()).fit()` makes the environment before it trains."""
    script = script_of("""
        class Env:
            def __init__(self):
                dist.init_process_group("gloo")

        class Trainer:
            def __init__(self, env):
                self.env = env

            def fit(self):
                dist.barrier()

        Trainer(Env()).fit()
    """)
    (start,) = script.calls("torch.distributed.init_process_group")
    (barrier,) = script.calls("torch.distributed.barrier")

    (first,), (second,) = script.paths.to(start.node), script.paths.to(barrier.node)

    assert runs_before(first, second)
    assert not runs_before(second, first)


def test_the_main_block_of_an_imported_file_leads_nowhere(tmp_path: Path):
    """A tool that the script imports for one of its functions is not started as well."""
    (tmp_path / "convert.py").write_text(
        textwrap.dedent("""
            def convert(model, save=False):
                if save:
                    target()
                return model

            def main():
                convert(None, save=True)

            if __name__ == "__main__":
                main()
        """)
    )
    path = tmp_path / "train.py"
    source = parse(path, b"import torch.distributed as dist\nfrom convert import convert\nconvert(None)\n")
    assert isinstance(source, Source)
    script = Script(Program(source))
    (call,) = (
        call for each in script.program.functions for call in each.calls if getattr(call.func, "id", "") == "target"
    )

    assert script.paths.to(call) == []
