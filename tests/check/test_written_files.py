"""Files that scripts write, and whether their names are the same on all ranks."""

from __future__ import annotations

import textwrap

import pytest

from paceline.check.analyses.same_file import written_out
from paceline.check.analyses.written_files import Naming, naming, writes
from tests.check.rule_cases import script_of

NAMES = {
    "a constant": ('path = "model.pt"', Naming.SAME),
    "an argument of the command line": ("path = argparse.ArgumentParser().parse_args().out", Naming.SAME),
    "a counter": ('path = [f"{epoch}.pt" for epoch in range(3)][0]', Naming.SAME),
    "the date": ('path = time.strftime("%Y-%m-%d")', Naming.SAME),
    "the rank": ('path = f"random-{dist.get_rank()}.pt"', Naming.PER_RANK),
    "the rank, through a function": (
        """
        def name(rank):
            return "random-" + str(rank)

        path = name(dist.get_rank())
        """,
        Naming.PER_RANK,
    ),
    "the time": ('path = os.path.join("runs", time.strftime("%H%M%S"))', Naming.PER_PROCESS),
    "the process id": ('path = f"{os.getpid()}.pt"', Naming.PER_PROCESS),
    "a name that is broadcast": (
        """
        names = [time.strftime("%H%M%S")]
        dist.broadcast_object_list(names)
        path = names[0]
        """,
        Naming.SAME,
    ),
    "a temporary file": (
        """
        import tempfile

        path = tempfile.mkdtemp() + "/model.pt"
        """,
        Naming.TEMPORARY,
    ),
    "a function of another package": (
        """
        from elsewhere import output_path

        path = output_path("model")
        """,
        Naming.UNREAD,
    ),
}


@pytest.mark.parametrize(("case", "expected"), NAMES.values(), ids=NAMES.keys())
def test_names_of_files_are_compared_between_ranks(case: str, expected: Naming):
    """The name follows variables, functions and arguments."""
    script = script_of(textwrap.dedent(case) + "\ntorch.save({}, path)\n")
    (write,) = writes(script)

    assert naming(script, write.path, None) is expected


def test_two_expressions_of_one_file_are_written_out_alike():
    """Attributes, arguments and constants are put in their places."""
    script = script_of("""
        LAST = "out/last.pt"

        class Saver:
            def __init__(self, directory):
                self.directory, self.count = directory, 0

            def save(self):
                torch.save({}, os.path.join(self.directory, "last.pt"))

        Saver("out").save()
        torch.save({}, LAST)
    """)
    paths = [(each.path, script.paths.to(each.site.node)[0].context) for each in writes(script)]

    texts = {written_out(script, path, context) for path, context in paths}

    assert texts == {"out/last.pt"}


def test_calls_that_write_are_found_in_all_their_forms():
    """Functions, methods, modes of `open`, and methods of `pathlib.Path`."""
    script = script_of("""
        from pathlib import Path

        np.save("a.npy", [])
        open("b.txt", "w")
        Path("c.txt").write_text("")
        Path("d.txt").open("wb")
        os.replace("e.tmp", "e")
        open("f.txt")
        torch.load("g.pt")
    """)

    assert [each.site.node.lineno for each in writes(script)] == sorted(
        each.site.node.lineno for each in writes(script)
    )
    assert len(writes(script)) == 5
