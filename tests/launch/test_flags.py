"""The recorded table of flags, against the parser of the installed torch."""

import argparse
from collections.abc import Iterable

import pytest
import torch
from torch.distributed.run import get_args_parser

from paceline.launch.flags import OURS, TORCHRUN, all_flags, flags_before_script, help_text, since
from paceline.launch.torchrun_flags import build_parser

WORD_FOR = {
    "nnodes": "1:2",
    "nproc_per_node": "2",
    "max_restarts": "1",
    "monitor_interval": "0.5",
    "start_method": "fork",
    "node_rank": "1",
    "master_port": "1234",
    "numa_binding": "node",
    "shutdown_timeout": "5",
    "print_completion": "bash",
}


def differences(parser: argparse.ArgumentParser, version: str) -> list[str]:
    """Where the table disagrees with a parser of torchrun; empty when it does not.

    Args:
        parser: `torch.distributed.run.get_args_parser()`.
        version: of the torch that made it; flags that came later are not missed.
    """
    actual = {
        _dashed(action.option_strings): "" if action.nargs == 0 else "value"
        for action in parser._actions
        if action.option_strings
    }
    release = _release(version)
    table = {
        flag.names: flag for group in TORCHRUN.values() for flag in group if _release(flag.since or "0") <= release
    }
    found = [f"{'/'.join(names)} is not in the table" for names in actual if names not in table]
    found += [f"{'/'.join(names)} is not a flag of torch {version}" for names in table if names not in actual]
    found += [
        f"{'/'.join(names)} {'takes a value' if actual[names] else 'is a switch'}"
        for names, flag in table.items()
        if names in actual and bool(flag.value) != bool(actual[names])
    ]
    return found


def _dashed(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if "_" not in name)


def _release(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("+")[0].split(".")[:2]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def torch_actions():
    """Every flag of torchrun's parser that can be tried without ending the process."""
    return [
        action
        for action in get_args_parser()._actions
        if action.option_strings and action.dest not in ("help", "print_completion")
    ]


def test_the_table_agrees_with_the_installed_torch():
    """Same flags, same need of a value."""
    assert differences(get_args_parser(), torch.__version__) == []


def test_a_flag_that_the_table_lacks_is_noticed():
    """A new torch release must not pass in silence."""
    parser = get_args_parser()
    parser.add_argument("--brand-new", "--brand_new")

    assert differences(parser, torch.__version__) == ["--brand-new is not in the table"]


def test_a_flag_that_torch_lacks_is_noticed_unless_it_came_later():
    """An older torch misses what came after it, and nothing else."""
    empty = argparse.ArgumentParser()

    old = differences(empty, "2.9.1")

    assert "--nnodes is not a flag of torch 2.9.1" in old
    assert not any("--shutdown-timeout" in line for line in old)


def test_a_flag_that_changed_its_kind_is_noticed():
    """A switch that takes a value now would swallow the script's name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--standalone")

    assert "--standalone takes a value" in differences(parser, "2.14.0")


@pytest.mark.parametrize("action", torch_actions(), ids=lambda action: action.option_strings[0])
def test_every_flag_of_torchrun_means_the_same(action):
    """In each spelling, our parser reads what torchrun's reads, and the script keeps its own arguments."""
    for name in action.option_strings:
        words = [name] if action.nargs == 0 else [name, WORD_FOR.get(action.dest, "1")]
        argv = [*words, "train.py", "--run-dir", "x", "--", "-h", name]

        ours = vars(build_parser().parse_args(argv))

        theirs = vars(get_args_parser().parse_args(argv))
        assert {key: ours[key] for key in theirs} == theirs
        assert ours["run_dir"] is None
        assert ours["training_script_args"] == ["--run-dir", "x", "--", "-h", name]


@pytest.mark.parametrize("flag", all_flags(), ids=lambda flag: flag.names[-1])
def test_help_lists_every_flag(flag):
    """With what it does."""
    text = help_text()

    assert ", ".join(flag.names) in text
    assert flag.help.split()[0] in text


def test_help_fits_the_width():
    """Readable in a terminal of a hundred columns; the intro is set by hand for a little more."""
    assert max(len(line) for line in help_text(100).splitlines()) <= 118
    assert OURS[0].names[0] in help_text(60)


def test_flags_end_where_the_script_begins():
    """Values are not taken for the script, nor the script's arguments for flags."""
    argv = ["--nproc-per-node", "2", "--rdzv_id=7", "-m", "--nnodes", "1", "pkg.train", "--help"]

    assert list(flags_before_script(argv)) == ["--nproc-per-node", "--rdzv_id", "-m", "--nnodes"]
    assert list(flags_before_script(["--standalone", "--", "--help"])) == ["--standalone"]


def test_the_release_that_brought_a_flag_is_known_in_either_spelling():
    """For the message to users of an older torch."""
    assert since("--shutdown_timeout=3") == "2.12"
    assert since("--nnodes") == ""
    assert since("--nonsense") == ""
