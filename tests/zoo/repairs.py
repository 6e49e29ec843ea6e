"""Repaired twins of the faulty scripts: `python -m tests.zoo.repairs [slugs]` runs them under torchrun.

`REPAIRS` names, for each faulty script, the edits that an expert would make: the fault goes, everything else stays. A
twin shows what its script shows except the fault, so a finding that names the fault in a twin is a false alarm.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.zoo.catalog import Script, scripts
from tests.zoo.repairs_table import REPAIRS

_FAULT_COMMENT = re.compile(r"[ \t]*#[ \t]*fault[ \t]*$", re.MULTILINE)
_HEADER = re.compile(r'\A("""[^"]*?)\n\nzoo: [^"]*?"""')


def bare(source: str) -> str:
    """The source without its `zoo:` header and without `# fault` comments: nothing in it says what it is."""
    return _FAULT_COMMENT.sub("", _HEADER.sub(r'\1"""', source))


def repaired(script: Script) -> str:
    """The source of the script's twin.

    Raises:
        KeyError: the script has no repair.
        ValueError: the old text of an edit is not found exactly once in the bare source.
    """
    text = bare(script.path.read_text(encoding="utf-8"))
    for old, new in REPAIRS[script.slug]:
        if text.count(old) != 1:
            raise ValueError(f"{script.slug}: found {text.count(old)} times: {old}")
        text = text.replace(old, new)
    return text


def run_twin(script: Script, folder: Path, timeout_s: float = 60.0) -> tuple[int, str]:
    """Run a twin under torchrun in `folder`. Returns its exit code, 124 after `timeout_s`, and its output.

    A twin that fails runs a second time: gloo sometimes aborts a rank that has done its work.
    """
    path = folder / f"{script.slug}.py"
    path.write_text(repaired(script), encoding="utf-8")
    code, output = _torchrun(script, path, folder / script.slug, timeout_s)
    return _torchrun(script, path, folder / f"{script.slug}-again", timeout_s) if code else (code, output)


def _torchrun(script: Script, path: Path, work: Path, timeout_s: float) -> tuple[int, str]:
    work.mkdir()
    command = [sys.executable]
    if script.launcher != "python":
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(script.world)]
    try:
        done = subprocess.run(
            [*command, str(path), *script.args],
            cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired as stopped:
        return 124, (stopped.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace")


def main() -> int:
    """Run the twins that were asked for. Returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="slugs or fault ids; all scripts by default")
    names = set(parser.parse_args().names)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="zoo-repaired-") as folder:
        for script in scripts():
            if not script.faulty or (names and not names & {script.slug, *script.faults}):
                continue
            if script.needs and not importlib.util.find_spec(script.needs):
                print(f"skipped  {script.slug}: needs {script.needs}")
                continue
            began = time.monotonic()
            code, output = run_twin(script, Path(folder))
            failed += code != 0
            print(f"{'failed ' if code else 'done   '}  {script.slug} {time.monotonic() - began:.1f} s", flush=True)
            if code:
                print(output[-3000:])
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
