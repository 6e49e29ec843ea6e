"""A planted job can be read: whoever knows the text alone finds the rank and the cause."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from paceline_course.assess.planted import CAUSES, RANKS, planted

SEEDS = range(210)
NEVER = {"network", "memory"}


def solved(text: str) -> tuple[int, str]:
    """Rank and cause from the text alone, as a reader would go about it."""
    looks = [
        part.split("Their stacks")[0].split("The lines of")[0] for part in re.split(r"^-- \d+ s .*$", text, flags=re.M)
    ]
    first, second = looks[1], looks[2]
    standing = re.findall(r"^  rank (\d) +(.*)$", first, flags=re.M)
    counts = [[int(number) for number in re.findall(r"(?:called|its) (\d+)", look)] for look in (first, second)]
    absent = [int(rank) for rank, words in standing if words.startswith("has called")]
    if counts[0] != counts[1]:
        return only(absent), "slow-reading"
    printed = re.findall(r'printed "(.*)"', text)
    if absent:
        assert "Error" in printed[only(absent)]
        return only(absent), "exception"
    odd = odd_one([words.split(", at ")[1] for _, words in standing])
    functions = [words.rsplit(" ", 1)[1] for _, words in standing]
    if len(set(functions)) == 1:
        return odd, "order"
    if "wanted" in printed[odd]:
        seen, goal = re.findall(r"\d\.\d+", printed[odd])
        assert float(seen) > float(goal)
        return odd, "own-stop"
    of = [re.search(r"of (\d+)$", words) for words in printed]
    if of[odd] is not None and of[odd].group(1) != of[odd - 1].group(1):
        return odd, "fewer-batches"
    return odd, "only-one-saves" if "waits in barrier" in standing[odd][1] else "only-one-judges"


def only(ranks: list[int]) -> int:
    """The one that there is."""
    (rank,) = ranks
    return rank


def odd_one(places: list[str]) -> int:
    """The rank that stands elsewhere than the three others."""
    (place,) = [place for place, count in Counter(places).items() if count == 1]
    assert len(set(places)) == 2
    return places.index(place)


def test_a_reader_of_the_text_finds_the_rank_and_the_cause() -> None:
    """By rules that know nothing of how it was made."""
    for seed in SEEDS:
        instance = planted(seed)

        assert solved(instance.text) == (instance.culprit, instance.cause), seed


def test_all_causes_and_all_ranks_come_up() -> None:
    """But for the two choices that are never right."""
    instances = [planted(seed) for seed in SEEDS]
    counts = Counter(instance.cause for instance in instances)

    assert set(counts) == set(CAUSES) - NEVER
    assert min(counts.values()) > 10
    assert {instance.culprit for instance in instances} == set(range(RANKS))


def test_a_seed_gives_the_same_text_and_others_give_other_texts() -> None:
    """Names, lines and numbers as well."""
    assert planted(5) == planted(5)
    assert len({planted(seed).text for seed in SEEDS}) == len(SEEDS)
    assert len({re.search(r"runs (\S+)\.", planted(seed).text).group(1) for seed in SEEDS}) > 2


def test_the_text_has_no_conclusion() -> None:
    """Neither the rows of the card that say it, nor its title, nor the solution's words."""
    for seed in range(40):
        instance = planted(seed)

        assert not re.search(r"^  (why|next) ", instance.text, flags=re.M)
        assert "hang" not in instance.text.split("Which rank")[0]
        assert "did not come" not in instance.text
        assert instance.why not in instance.text


def test_every_choice_stands_in_the_text_with_its_words() -> None:
    """A learner answers with one of these keys."""
    instance = planted(1)

    for key, words in instance.choices.items():
        assert re.search(rf"^  {key} +{re.escape(words)}$", instance.text, flags=re.M)
    assert instance.cause in instance.choices


def test_lines_fit_a_terminal_and_name_no_place_of_this_machine() -> None:
    """At most 120 columns."""
    for seed in range(40):
        text = planted(seed).text

        assert max(map(len, text.splitlines())) <= 120
        assert "/home" not in text
        assert "paceline" not in text


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_ranks_call_the_same_collectives_up_to_the_last_one(seed: int) -> None:
    """What is done was done by all: a text that says otherwise could not have happened."""
    text = planted(seed).text
    done = {
        number: set(re.findall(rf"^ +{number}  (\S+ +\S+ bytes  line \d+) +done$", text, flags=re.M))
        for number in re.findall(r"^ +(\d+)  \S+ +\S+ bytes .*done$", text, flags=re.M)
    }

    assert done
    assert all(len(calls) == 1 for calls in done.values())
