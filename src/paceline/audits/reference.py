"""docs/reference/audits.md, made from the audits: `python -m paceline.audits.reference > docs/reference/audits.md`.

A test compares the committed page with `page()`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from types import ModuleType

from paceline.audits.audit import HEADINGS, Audit
from paceline.audits.catalog import AUDITS
from paceline.records.findings import SEVERITIES
from paceline.records.observed_rank import SIGNALS

_WIDTH = 120
_OPENING = """
# Audits

<!-- Made by python -m paceline.audits.reference from the audits themselves; edit those. -->

An audit looks for one kind of fault of data-parallel training in the records of a run. [`paceline run`](run.md) judges
a job with all audits, while it runs and when it has ended; [`paceline audit`](audit.md) judges the records of a saved
run again. An audit needs no change to the script, and no second run to compare with.

Codes are permanent. Faults are ids of Paceline's catalog of faults, as the findings name them.

## Severities

| severity | meaning |
|---|---|
| `error` | certain: the records leave no other explanation |
| `warning` | probable: the records fit the fault, and something else could explain them |
| `info` | worth knowing: harmless in many scripts, or on purpose |

`paceline run --fail-on warning` exits with code 1 on errors and warnings; without `--fail-on` findings never change the
exit code.

## What is looked at

Probes within each rank record what follows; the audits compare ranks with each other. A topic without data is listed as
not observed, with the reason: "no findings" always comes with what was watched. Some faults leave no trace in this
data: [what a run cannot show](#what-a-run-cannot-show).

""".lstrip()

_JOBS = """
[DP180, DP181 and DP182](run.md#why-a-job-failed) say why a job failed, [DP401 to DP405](run.md#a-job-that-hangs) which
rank a hanging job waits for. They are no audits: the launcher judges how ranks ended, and where they are.
"""

_CLOSING = """
## What a run cannot show

These faults leave the ranks of a run equal to each other, or are a question of what the script should have done.
Audits do not find them. "No findings" says nothing about them.

[`paceline verify`](verify.md) answers if N ranks compute what one process computes: it runs the script both ways and
compares gradients and parameters:

| fault | what happens |
|---|---|
| F16 | the batch size is meant for the whole job and taken for each rank, or the other way round |
| F17 | the batch does not divide by the number of ranks, so that samples have unequal weights |
| F20 | a hidden state is carried over batches, and sharding breaks the sequences apart |
| F22 | the loss is a mean over tokens or valid items, whose number differs between ranks |
| F23 | the loss is a sum, and DDP's mean over ranks makes it 1/N |
| F24 | the loss is multiplied or divided by the number of ranks although DDP averages |
| F27 | accumulated losses are not divided by the number of micro-steps |
| F31 | the loss does not split over ranks: contrastive losses, batch Dice, AUC, normalized advantages |
| F32 | the learning rate is not scaled with the batch, scaled twice, or warmed up in samples |
| F34 | `all_gather` cuts the gradient of the gathered tensors |
| F36 | the optimizer decides on numbers of its rank: L-BFGS with a line search, updates by hand. |

[`paceline check`](check.md) reads these in the source, and most of those above. `paceline run` does so as well:

| fault | what happens |
|---|---|
| F10 | a weighted or custom sampler is dropped for a DistributedSampler, and the class balance with it |
| F63 | state that is no tensor (counters, lists, queues) is never synchronized |
| F72 | an average of averages over unequal shards |
| F73 | a metric that is no mean (AUC, F1, mAP, BLEU, perplexity) is averaged over ranks |
| F74 | gathered predictions come in the order of ranks and are matched with labels in the order of the data set |
| F96 | keys with the prefix `module.` are loaded with `strict=False`, so that nothing is loaded |
| F99 | a checkpoint lacks the epoch, the sampler, the scheduler or the random state |

`paceline drill` (next) also detects F99: it interrupts a run and compares the resumed one.

Faults that end in an exception or a hang (F04, F40, F48, F52, F78, F90 and others) need no audit: the
[root-cause card](run.md#why-a-job-failed) names the rank that failed first, and its line where that is known. The
[card of a hang](run.md#a-job-that-hangs) names the rank that the others wait for.
"""


def page() -> str:
    """The whole page."""
    signals = "\n".join(f"- `{name}`: {text}" for name, text in SIGNALS.items())
    rows = ["| code | name | severity | topic | what it says | faults |", "|---|---|---|---|---|---|"]
    for kind in AUDITS:
        link = f"[{kind.code}](#{_title(kind).lower().replace(' ', '-')})"
        summary = _summary(_module(kind)).rstrip(".")
        rows.append(
            f"| {link} | `{kind.name}` | {', '.join(severities(kind))} | {kind.topic} | {summary} | "
            f"{', '.join(kind.faults)} |"
        )
    sections = "\n".join(_section(kind) for kind in AUDITS)
    table = "\n".join(rows)
    return f"{_OPENING}{signals}\n\n## All audits\n\n{table}\n{_JOBS}\n{sections}{_CLOSING}"


def severities(kind: type[Audit]) -> list[str]:
    """Severities of its findings, most severe first, as its source names them."""
    tree = ast.parse(inspect.getsource(_module(kind)))
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in compared}
    return [each for each in SEVERITIES if each in named]


def _module(kind: type[Audit]) -> ModuleType:
    return sys.modules[kind.__module__]


def _title(kind: type[Audit]) -> str:
    return f"{kind.code} {kind.name}"


def _summary(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").partition("\n")[0]


def _section(kind: type[Audit]) -> str:
    document = inspect.getdoc(_module(kind)) or ""
    parts = re.split(rf"^({'|'.join(HEADINGS)}):$", document, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = [f"### {_title(kind)}", "", _summary(_module(kind)), ""]
    needs = ", ".join(f"`{each}`" for each in kind.needs)
    facts = f"Severity: {', '.join(severities(kind))}. Topic: {kind.topic}. Faults: {', '.join(kind.faults)}."
    facts += f" Needs: {needs}."
    lines += [_filled(facts), ""]
    for heading in HEADINGS:
        text = textwrap.dedent(texts[heading].strip("\n"))
        if heading == "References":
            text = " ".join(text.split())
        lines += [_filled(f"**{heading}.** {' '.join(text.split())}"), ""]
    return "\n".join(lines)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(page())
