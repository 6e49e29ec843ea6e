"""Lines that every rank printed are counted; others are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.launch.output_compare import compare_output


def printed(folder: Path, *texts: str | bytes, name: str = "stdout.log") -> list[int]:
    """Files as capture leaves them; gives the local ranks."""
    for rank, text in enumerate(texts):
        (folder / str(rank)).mkdir()
        (folder / str(rank) / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(range(len(texts)))


def test_lines_of_all_ranks_count_as_often_as_the_rank_that_has_fewest_of_them(tmp_path: Path) -> None:
    """By hand: three epochs on every rank, told apart by nothing but a number, and lines that name a rank left out."""
    ranks = printed(
        tmp_path,
        "epoch 1\nepoch 1\nepoch 1\nepoch 2\nrank 0\n",
        "epoch 1\nepoch 2\nepoch 1\nrank 1\nrank 1 and 2\n",
        "  epoch 2  \nepoch 1\nepoch 1\nrank 2\nrank 1 and 2\n",
    )

    compared = compare_output(tmp_path, ranks)

    assert (compared.lines, compared.repeated) == (4, 3)
    assert [(each.text, each.ranks, each.times) for each in compared.examples] == [("epoch 1", 3, 10)]


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from(["alpha", "beta!", "gamma", "delta"]), max_size=8), min_size=2, max_size=4))
def test_repeated_lines_are_the_intersection_of_the_ranks_multisets(tmp_path_factory, ranks) -> None:
    """Independent of the order in which ranks print, and the same whichever rank is first."""
    least = {text: min(each.count(text) for each in ranks) for text in {"alpha", "beta!", "gamma", "delta"}}
    for order in (ranks, ranks[::-1]):
        folder = tmp_path_factory.mktemp("ranks")
        local = printed(folder, *("\n".join(lines) for lines in order))

        compared = compare_output(folder, local)

        assert compared.repeated == sum(least.values())
        assert compared.lines == len(order[0])
        assert {each.text for each in compared.examples} <= set(+Counter(least))


@pytest.mark.parametrize("text", ["", "\n\n", "ok\n...\n"])
def test_lines_of_fewer_than_four_characters_say_nothing(tmp_path: Path, text: str) -> None:
    """A dot for each batch is no repeated message."""
    compared = compare_output(tmp_path, printed(tmp_path, text, text))

    assert (compared.lines, compared.repeated, compared.examples) == (0, 0, [])


def test_output_that_is_no_text_is_compared_all_the_same(tmp_path: Path) -> None:
    """Whatever bytes ranks print, and whichever file holds both streams."""
    ranks = printed(tmp_path, b"line \xff\xfe\n", b"line \xff\xfe\n", name="output.log")

    assert compare_output(tmp_path, ranks).repeated == 1


@pytest.mark.parametrize("texts", [(), ("alone\n",)])
def test_fewer_than_two_ranks_cannot_be_compared(tmp_path: Path, texts: tuple[str, ...]) -> None:
    """That is no statement about their output."""
    assert compare_output(tmp_path, printed(tmp_path, *texts)) is None


def test_nothing_is_said_where_a_rank_kept_no_output(tmp_path: Path) -> None:
    """With `--tee` or redirects of the user's own."""
    printed(tmp_path, "line\n", "line\n")

    assert compare_output(tmp_path, [0, 1, 2]) is None
