"""Run `paceline check` over public packages, and show every finding with the judgement of a reader.

    python bench/quietness.py --corpus DIR            check the packages, and write the findings
    python bench/quietness.py --page docs/studies/quietness.md

`quietness_packages.txt` names the packages: `name==version sdist|wheel`. DIR has one folder for each, `name-version`,
with the unpacked sdist or wheel (`pip download --no-deps`). Tests of the packages are left out: some err on purpose.

`quietness_judgements.jsonl` has a line for each finding that a person read: is it true? A finding that is not judged
counts as not judged, never as true.

Cost: 2 minutes on 2 cores for 5,000 files. Writes bench/records/quietness/.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import environment, environment_lines
from paceline.check.catalog import RULES
from paceline.check.check_files import check_all, files_below, joined
from paceline.check.selection import Selection, Settings

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "quietness_packages.txt"
JUDGEMENTS = HERE / "quietness_judgements.jsonl"
RECORD = HERE / "records" / "quietness"
LIMITS = (
    "**Limits.** The rules were repaired on these packages, so the table is no estimate for other code. The reading",
    "before the last repairs had 7 false warnings (0.64 in 500 files) and 3 false infos in 61 findings. Of 37 errors",
    "and warnings in about 5,800 files of other packages, 18 were read: 1 error and 8 warnings were false, and are",
    "repaired. Only a quarter of the files that import torch train or communicate. Verdicts come from reading.",
)
TESTS = re.compile(r"(^|/)(tests?|testing|unit_tests|test_[^/]*)(/|\.py$)|_test\.py$|(^|/)conftest\.py$")
TRAINS = re.compile(
    rb"\.backward\(|torch\.distributed|DistributedDataParallel|DistributedSampler|init_process_group|Accelerator\(|Fabric\("
    rb"|LightningModule|torch\.optim|optimizer\.step"
)
"""A file with one of these trains or communicates; the others are library code."""


@dataclass(frozen=True)
class Found:
    """A finding in a package; `path` is relative to the package's folder."""

    package: str
    path: str
    line: int
    code: str
    severity: str
    message: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Identifies the finding."""
        return self.package, self.path, self.line, self.code


def packages() -> list[str]:
    """Names of the packages with their versions."""
    return [line.split()[0] for line in PACKAGES.read_text().splitlines() if line.strip()]


def check_package(folder: Path, package: str) -> tuple[list[Found], dict[str, int]]:
    """Check one package: its findings, and what its files are."""
    shown = {path: text for path, text in files_below([folder]).items() if not TESTS.search(_inside(path, folder))}
    selection = Selection(Settings(folder=folder))
    result = joined(check_all(list(shown), selection.rules), shown, selection)
    imports = [path for path in shown if re.search(rb"^\s*(import|from) torch", Path(path).read_bytes(), re.MULTILINE)]
    counts = {
        "files": len(shown),
        "import torch": len(imports),
        "train or communicate": sum(bool(TRAINS.search(Path(path).read_bytes())) for path in imports),
        "judged by rules": len(result.distributed),
        "unreadable": len(result.unreadable),
    }
    found = [
        Found(package, _inside(each.path or "", folder), each.line or 0, each.code, each.severity, each.message)
        for each in result.findings
    ]
    return found, counts


def _inside(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder))


def judgements() -> dict[tuple[str, str, int, str], dict[str, Any]]:
    """Judgements of readers: `true`, `false`, or `unclear` with the reason."""
    if not JUDGEMENTS.exists():
        return {}
    lines = [json.loads(line) for line in JUDGEMENTS.read_text().splitlines() if line]
    return {(each["package"], each["path"], each["line"], each["code"]): each for each in lines}


def page(result: dict[str, Any], found: Iterable[Found]) -> str:
    """The study as Markdown."""
    known = judgements()
    rows = [(each, known.get(each.key, {}).get("verdict", "not judged")) for each in found]
    total = Counter[str]()
    for counts in result["packages"].values():
        total.update(counts)
    lines = [
        "# How quiet is `paceline check`?",
        "",
        "<!-- Made by python bench/quietness.py --page from bench/records/quietness; edit the script. -->",
        "",
        f"`paceline check` read {total['files']:,} files of {len(result['packages'])} public packages, without their",
        f"tests. {total['import torch']:,} files import torch; {total['train or communicate']:,} of these train or",
        f"communicate, the rest is library code. All rules ran on {total['judged by rules']:,} distributed files;",
        f"{total['unreadable']:,} could not be parsed. Every finding was judged from its source. Rates count the files",
        "that import torch.",
        "",
        "| severity | findings | true | false | unclear | not judged | false ones in 500 files |",
        "|---|---|---|---|---|---|---|",
    ]
    for severity in ("error", "warning", "info"):
        verdicts = Counter(verdict for each, verdict in rows if each.severity == severity)
        rate = 500 * verdicts["false"] / max(total["import torch"], 1)
        parts = [str(verdicts[name]) for name in ("true", "false", "unclear", "not judged")]
        lines.append(f"| {severity} | {verdicts.total()} | {' | '.join(parts)} | {rate:.2f} |")
    lines += [
        "",
        *LIMITS,
        "",
        "## Every error and warning",
        "",
        "| finding | place | judgement | why |",
        "|---|---|---|---|",
    ]
    for each, verdict in sorted(rows, key=lambda row: (row[0].code, row[0].key)):
        if each.severity in ("error", "warning"):
            why = str(known.get(each.key, {}).get("reason", "")).replace("|", "\\|")
            lines.append(
                f"| {each.code} ({each.severity}) | {each.package} `{each.path}:{each.line}` | {verdict} | {why} |"
            )
    lines += ["", "## Findings of severity info, by rule", "", "| rule | findings |", "|---|---|"]
    infos = Counter(each.code for each, _ in rows if each.severity == "info")
    names = {rule.code: rule.name for rule in RULES}
    lines += [f"| {code} {names.get(code, '')} | {count} |" for code, count in sorted(infos.items())]
    lines += [
        "",
        "## Packages",
        "",
        "| package | files | import torch | train or communicate | judged by rules |",
        "|---|---|---|---|---|",
    ]
    for name, counts in sorted(result["packages"].items()):
        columns = ("files", "import torch", "train or communicate", "judged by rules")
        lines.append(f"| {name} | {' | '.join(str(counts[column]) for column in columns)} |")
    return "\n".join([*lines, "", *environment_lines(result["environment"]), ""])


def main() -> int:
    """Check, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    if arguments.corpus:
        found: list[Found] = []
        counts: dict[str, dict[str, int]] = {}
        begun = time.perf_counter()
        for package in packages():
            each, counts[package] = check_package((arguments.corpus / package.replace("==", "-")).resolve(), package)
            found += each
            print(f"{package}: {len(each)} findings in {counts[package]['files']} files", file=sys.stderr)
        RECORD.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(each)) for each in sorted(found, key=lambda each: each.key)]
        (RECORD / "findings.jsonl").write_text("".join(f"{line}\n" for line in lines))
        result = {"seconds": time.perf_counter() - begun, "packages": counts, "environment": environment()}
        (RECORD / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    if arguments.page:
        found = [Found(**json.loads(line)) for line in (RECORD / "findings.jsonl").read_text().splitlines()]
        arguments.page.write_text(page(json.loads((RECORD / "result.json").read_text()), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
