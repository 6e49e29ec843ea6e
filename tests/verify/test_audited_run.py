"""The run for the audits says where it saw nothing."""

from __future__ import annotations

from pathlib import Path

from paceline.observe.parity.script_rank import ScriptJob
from paceline.verify.audited_run import audited_run


def test_a_run_without_optimizer_steps_proves_nothing(tmp_path: Path) -> None:
    """Findings are missing then for another reason than that all is well."""
    script = tmp_path / "train.py"
    script.write_text("print('no training')")
    job = ScriptJob(script=str(script), arguments=[], directory=str(tmp_path))
    audited = audited_run(job, 1, tmp_path / "runs" / "audited", 120, allow_writes=True)

    assert audited.missing == "the audits observed no training"
    assert not audited.findings
