"""From failures of ranks to one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from paceline.audits.job_failure import RankFailed, failure_of
from paceline.launch.rank_ends import attempt_of
from paceline.records.errors import Exit, PacelineError
from paceline.records.launched import Attempt


def attempt(**exit_codes: int) -> Attempt:
    """Ranks of a job that failed: rank0=1, rank1=-9."""
    ranks = {int(name.removeprefix("rank")): code for name, code in exit_codes.items()}
    return attempt_of(
        {rank: ProcessFailure(local_rank=rank, pid=100, exitcode=code, error_file="") for rank, code in ranks.items()}
    )


def says(logs: Path, rank: int, detail: object) -> None:
    """Leave an error.json, as a rank does."""
    folder = logs / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "error.json").write_text(detail if isinstance(detail, str) else json.dumps(detail))


def own_words(what: str, at_s: float, code: int = 2) -> dict[str, Any]:
    """What a rank of ours writes."""
    return {
        "message": {"message": f"PacelineError: {what}"},
        "time_unix_s": at_s,
        "paceline": {"what": what, "why": "w", "hint": "h", "exit_code": code},
    }


def test_the_earliest_rank_that_explained_itself_is_quoted_as_it_is(tmp_path: Path) -> None:
    """All parts and the exit code; later ranks only repeat it."""
    says(tmp_path, 0, own_words("later", 20.0))
    says(tmp_path, 1, own_words("the disk is full", 10.0, Exit.CANNOT_WRITE))

    error = failure_of(attempt(rank0=2, rank1=4), tmp_path, "paceline train --resume r")

    assert type(error) is PacelineError
    assert (error.what, error.why, error.hint, error.exit_code) == ("the disk is full", "w", "h", 4)


def test_a_rank_without_words_gets_a_card_that_names_it_and_the_way_to_go_on(tmp_path: Path) -> None:
    """A kill: which rank, by what, and the command that resumes; exit code 1."""
    (tmp_path / "1").mkdir()

    error = failure_of(attempt(rank1=-9), tmp_path, "paceline train --resume r")

    assert isinstance(error, RankFailed)
    assert error.exit_code == Exit.FAILED
    assert "rank 1" in str(error)
    assert "SIGKILL" in str(error)
    assert str(error).endswith("\n  next: paceline train --resume r")


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    """No empty line of advice."""
    text = str(failure_of(attempt(rank0=-9), tmp_path, ""))

    assert "next:" not in text.splitlines()[-1]
    assert "--resume" not in text


def test_torn_and_foreign_error_files_are_passed_over(tmp_path: Path) -> None:
    """A script's own exception is for the card; half a file is for nobody."""
    says(tmp_path, 0, '{"message": {"mess')
    says(tmp_path, 1, {"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "", "timestamp": "1"}}})
    says(tmp_path, 2, "[1, 2]")

    error = failure_of(attempt(rank0=-9, rank1=1, rank2=1), tmp_path, "")

    assert isinstance(error, RankFailed)


def test_a_job_that_left_no_logs_still_gets_its_card() -> None:
    """Nothing started: the exit code is all there is."""
    error = failure_of(attempt(rank0=3), None, "")

    assert isinstance(error, RankFailed)
    assert "code 3" in str(error)
