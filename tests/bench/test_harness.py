"""What the benchmarks share: intervals, turns, records."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness import environment, interleave, ratio_of_medians, record_folder, rounds_of, steps_for, write_record


def noisy_pairs(random, ratio, rounds=15):
    """Two contestants whose true ratio of medians is `ratio`, under common noise of 20 % and own noise of 3 %."""
    common = random.lognormal(sigma=0.2, size=rounds)
    own = random.lognormal(sigma=0.03, size=(2, rounds))
    return list(ratio * common * own[0]), list(common * own[1])


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says():
    """Of 200 simulated comparisons with a known ratio, the 95 % interval holds it in at least 180."""
    random = np.random.default_rng(3)

    intervals = [ratio_of_medians(*noisy_pairs(random, 1.3), resamples=400, seed=i) for i in range(200)]

    assert sum(i.low <= 1.3 <= i.high for i in intervals) >= 180
    assert all(i.low <= i.value <= i.high for i in intervals)


def test_noise_that_hits_both_sides_of_a_round_cancels():
    """With exactly proportional pairs the interval is the ratio itself, however much the machine swings."""
    bottom = list(np.random.default_rng(0).lognormal(sigma=1.0, size=15))

    interval = ratio_of_medians([1.25 * value for value in bottom], bottom)

    assert (interval.low, interval.high) == pytest.approx((1.25, 1.25))


@pytest.mark.parametrize(
    ("top", "bottom"),
    [([1.0, 2.0], [1.0, 2.0]), ([1.0, 2.0, 3.0], [1.0, 2.0]), ([1.0, 2.0, 0.0], [1.0, 2.0, 3.0]), ([], [])],
    ids=["two pairs", "unequal lengths", "a zero", "nothing"],
)
def test_too_little_or_senseless_data_is_refused(top, bottom):
    """No interval is made up from fewer than three pairs or from values that no time or speed has."""
    with pytest.raises(ValueError, match="at least 3 pairs"):
        ratio_of_medians(top, bottom)


def test_each_round_measures_everyone_once_in_an_order_of_its_own():
    """Rounds are permutations, not all the same, and the same again for the same seed."""
    names = ["a", "b", "c", "d"]

    rounds = list(rounds_of(names, 12, seed=5))

    assert all(sorted(order) == names for order in rounds)
    assert len({tuple(order) for order in rounds}) > 4
    assert rounds == list(rounds_of(names, 12, seed=5))
    assert rounds != list(rounds_of(names, 12, seed=6))


def test_interleaving_gives_each_its_measurements_in_order_of_rounds():
    """The k-th value of each name was measured in round k, with every other name in between."""
    calls = []

    def measure(name):
        calls.append(name)
        return float(len(calls))

    found = interleave(["a", "b", "c"], 4, measure)

    for index in range(4):
        of_round = sorted(found[name][index] for name in "abc")
        assert of_round == [3 * index + 1.0, 3 * index + 2.0, 3 * index + 3.0]


@pytest.mark.parametrize(("seconds", "step_s", "steps"), [(1.2, 0.1, 12), (1.0, 0.7, 2), (0.01, 5.0, 2)])
def test_blocks_are_as_long_as_asked_but_never_a_single_step(seconds, step_s, steps):
    """Blocks hold the steps that fill the time, and at least two."""
    assert steps_for(seconds, step_s) == steps


def test_a_record_is_json_and_words_in_a_dated_folder(tmp_path):
    """write_record leaves result.json that reads back, and README.md."""
    folder = record_folder("trial", tmp_path)

    write_record(folder, {"a": [1, 2.5]}, "# Trial\n")

    assert folder.name.endswith("_trial")
    assert json.loads((folder / "result.json").read_text()) == {"a": [1, 2.5]}
    assert (folder / "README.md").read_text() == "# Trial\n"


def test_the_environment_names_what_a_reader_needs_to_repeat_it():
    """Versions, cores, load and the allocator's settings are in the record, and no path of this machine is."""
    found = environment(allocator={"MALLOC_MMAP_MAX_": "0"})

    assert found["versions"]["torch"]
    assert found["cores"] >= 1
    assert len(found["load_average_before"]) == 3
    assert found["allocator"] == {"MALLOC_MMAP_MAX_": "0"}
    assert str(Path.cwd()) not in json.dumps(found)
