"""Every flag of `paceline run`, written down, so that `--help` needs no torch and takes no three seconds.

The launcher itself is built from the installed torch's own parser, so that every flag means what it means there. This
table is only read by people; a test compares it with the installed parser. `since` is the first torch
release that has the flag, read from the sources of 2.9 to 2.14; Paceline needs 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paceline.records.wrap import wrap

RECORDED_FROM = "2.14"
"""The torch release that the table was compared with last."""


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        names: as typed; spellings with underscores are accepted too and not listed.
        value: what follows it; "" for a switch.
        help: what it does, in a sentence.
        default: as shown; "" when there is none worth showing.
        since: the first torch release with it; "" when every supported one has it.
    """

    names: tuple[str, ...]
    value: str
    help: str
    default: str = ""
    since: str = ""


OURS = (
    Flag(("--run-dir",), "DIR", "the run's own directory, exactly this one", "runs/<date>_<time>_<script>"),
    Flag(("--no-tuning",), "", "leave the workers' thread and memory settings alone"),
    Flag(("--no-check",), "", "do not read the script: leave out the findings of paceline check"),
    Flag(("--dry-run",), "", "print what would be started, with each setting and its reason, and start nothing"),
    Flag(
        ("--fail-on",),
        "SEVERITY",
        "exit with code 1 if the job succeeds and a finding is at least this severe: error or warning",
    ),
    Flag(
        ("--hang-patience",),
        "SECONDS",
        "shortest pause in which no rank advances that is reported as a hang; more where steps take longer",
        "10",
    ),
    Flag(
        ("--stop-on-hang",),
        "",
        "end the ranks once a hang was reported: the attempt has failed, and the exit code is 1",
    ),
    Flag(
        ("--format",),
        "NAME",
        "text, or json for one JSON document on stdout; the script's own output then goes to stderr",
        "text",
    ),
)

TORCHRUN: dict[str, tuple[Flag, ...]] = {
    "Workers and machines": (
        Flag(("--nproc-per-node",), "N", "workers on each machine: a number, auto, cpu, gpu or xpu", "1"),
        Flag(("--nnodes",), "N", "machines, or MIN:MAX for an elastic job", "1:1"),
        Flag(("--node-rank",), "N", "this machine's number in a job with a fixed address (static rendezvous)", "0"),
        Flag(("--master-addr",), "HOST", "address of machine 0 (static rendezvous)", "127.0.0.1"),
        Flag(("--master-port",), "PORT", "port on machine 0 (static rendezvous)", "free on one machine, else 29500"),
        Flag(("--local-addr",), "HOST", "address under which others reach this machine", "looked up"),
        Flag(("--standalone",), "", "one machine, with a rendezvous of its own on a free port"),
    ),
    "Meeting point of several machines": (
        Flag(("--rdzv-backend",), "NAME", "how machines find each other: static, c10d, etcd-v2, ...", "static"),
        Flag(("--rdzv-endpoint",), "HOST:PORT", "where they meet"),
        Flag(("--rdzv-id",), "ID", "name of the job there", "none"),
        Flag(("--rdzv-conf",), "K=V,...", "settings of the backend"),
    ),
    "The script": (
        Flag(("-m", "--module"), "", "SCRIPT is a module, as for python -m"),
        Flag(("--no-python",), "", "SCRIPT is a program, started without python"),
        Flag(("--run-path",), "", "run SCRIPT inside the worker's own interpreter"),
        Flag(("--start-method",), "NAME", "how workers start with --run-path: spawn, fork or forkserver", "spawn"),
        Flag(("--role",), "NAME", "name of the workers in log prefixes", "default"),
        Flag(("--numa-binding",), "MODE", "bind workers near their GPU: node, socket, exclusive or core-complex"),
        Flag(
            ("--virtual-local-rank",),
            "",
            "each worker sees only its own GPU, as device 0 with LOCAL_RANK 0",
            "",
            "2.10",
        ),
    ),
    "Output and logs": (
        Flag(("--log-dir",), "DIR", "where logs go", "logs/ in the run directory"),
        Flag(("-r", "--redirects"), "STREAMS", "into files: 1 stdout, 2 stderr, 3 both, or RANK:STREAMS,...", "0"),
        Flag(("-t", "--tee"), "STREAMS", "into files and onto the terminal with a prefix; as --redirects", "0"),
        Flag(("--local-ranks-filter",), "RANKS", "show only these local ranks on the terminal", "all"),
        Flag(
            ("--log-line-prefix-template",), "TEXT", "prefix of lines with --tee, with macros like ${rank}", "", "2.14"
        ),
        Flag(("--duplicate-stdout-filters",), "TEXTS", "also collect stdout lines that hold one of these", "", "2.10"),
        Flag(("--duplicate-stderr-filters",), "TEXTS", "also collect stderr lines that hold one of these", "", "2.10"),
        Flag(("--logs-specs",), "NAME", "an installed plug-in that decides about logs"),
        Flag(("--event-log-handler",), "NAME", "where torch elastic's own events go", "null"),
    ),
    "Failures and signals": (
        Flag(("--max-restarts",), "N", "start all workers again so many times when one fails", "0"),
        Flag(("--monitor-interval",), "SECONDS", "how often workers are looked at", "0.1"),
        Flag(
            ("--signals-to-handle",),
            "NAMES",
            "signals that are passed on to the workers",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            "2.10",
        ),
        Flag(("--shutdown-timeout",), "SECONDS", "between asking workers to stop and killing them", "30", "2.12"),
    ),
    "Else": (
        Flag(("-h", "--help"), "", "this text"),
        Flag(("--print-completion",), "SHELL", "torchrun's completion script for bash, zsh or tcsh", "", "2.14"),
    ),
}

_USAGE = "Usage: paceline run [FLAGS] SCRIPT [ARGUMENTS OF THE SCRIPT ...]"

_INTRO = """
Launch a script as torchrun does, and report silent faults with rank, step, line and repair. Every flag of torchrun
means the same, and the exit code is the same. The script needs no change and never imports paceline.

  paceline run --nproc-per-node 2 train.py --epochs 3

The ranks are watched without changing what they compute. A card at the end reports, for example, ranks that do not
synchronize, train on the same data, evaluate padded samples or write the same file, and what was not observed. The
script is also read, as by paceline check: a fault that is found both ways is one finding.
If no rank advances, a card says after about 12 seconds which rank the others wait for, and at which line it is.
PACELINE_OBSERVE=0 switches that off. Paceline also adds a run directory with the command and its logs, settings that
make workers on CPUs faster, and, when a rank fails, a card that names the rank, the cause and the line.

Flags come before SCRIPT, and everything after it belongs to the script. Each flag of torchrun can also be set by an
environment variable, for example PET_NPROC_PER_NODE=2.
"""


def all_flags() -> list[Flag]:
    """Ours and torchrun's."""
    return [*OURS, *(flag for group in TORCHRUN.values() for flag in group)]


def help_text(width: int = 100) -> str:
    """The whole of `paceline run --help`, `width` columns wide."""
    parts = wrap(_USAGE, width)
    for block in _INTRO.strip().split("\n\n"):
        parts += ["", *wrap(block, width, "  " if block.startswith("  ") else "")]
    parts += ["", *_section("Paceline's own", OURS, width)]
    for title, flags in TORCHRUN.items():
        parts += ["", *_section(title, flags, width)]
    return "\n".join(parts)


def since(name: str) -> str:
    """The torch release that brought a flag, in either spelling; "" for old and unknown ones."""
    dashed = name.split("=", 1)[0].replace("_", "-")
    return next((flag.since for flag in all_flags() if dashed in flag.names), "")


def flags_before_script(argv: Iterable[str]) -> Iterator[str]:
    """The flags among the words before the script, without their values; "--" ends them."""
    takes_value = {name for flag in all_flags() if flag.value for name in flag.names}
    words = iter(argv)
    for word in words:
        if word == "--" or not word.startswith("-"):
            return
        yield word.split("=", 1)[0]
        if word.replace("_", "-") in takes_value:
            next(words, None)


def _section(title: str, flags: Iterable[Flag], width: int) -> list[str]:
    lines = [f"{title}:"]
    for flag in flags:
        head = f"  {', '.join(flag.names)} {flag.value}".rstrip()
        text = flag.help
        if flag.default:
            text += f" (default {flag.default})"
        if flag.since:
            text += f" [torch {flag.since} and newer]"
        beside = len(head) < 33 and width >= 70
        first = f"{head:<33} " if beside else " " * 6
        lines += ([] if beside else [head]) + wrap(text, width, first, " " * len(first))
    return lines
