"""The catalog of the zoo: one `Script` for each training script, read from the header in its docstring.

The scripts are parsed and never imported, so this module needs no torch. `README.md` describes the header.
"""

import ast
import io
import re
import shlex
import tokenize
from dataclasses import dataclass
from pathlib import Path

ZOO = Path(__file__).parent
KEYS = ("zoo", "faults", "silent", "args", "world", "launcher", "needs", "observable", "ends")
FAULT_ID = re.compile(r"F\d+")
FAULT_COMMENT = re.compile(r"#\s*fault\s*")


class HeaderError(ValueError):
    """A script whose header is missing or malformed."""


@dataclass(frozen=True)
class Script:
    """A training script of the zoo and what its header says about it."""

    path: Path
    faulty: bool
    faults: tuple[str, ...]
    """Fault ids of the catalog, the main one first. Empty for a correct script."""
    silent: bool
    """The script exits with code 0 and prints no error, but its result is wrong."""
    args: tuple[str, ...]
    world: int
    launcher: str
    """`real` if the script needs torchrun itself, `python` if it starts its ranks itself, otherwise `any`."""
    needs: str | None
    """A module that must be installed."""
    observable: bool
    """False if a run on CPU with gloo cannot show the fault."""
    ends: str
    """`done` with code 0, in a `crash` of a rank, or never: `hang`."""
    fault_lines: tuple[int, ...]
    """The lines that a good report names, counted from 1."""

    @property
    def slug(self) -> str:
        """The file name without its suffix."""
        return self.path.stem


def scripts(root: Path = ZOO) -> list[Script]:
    """Return every script of the zoo, the faulty ones first, each group in order of name.

    Raises `HeaderError` for the first script with a malformed header.
    """
    return [parse(path) for kind in ("faulty", "correct") for path in sorted((root / kind).glob("*.py"))]


def parse(path: Path) -> Script:
    """Read one script. Its directory, `faulty` or `correct`, must agree with its header."""
    source = path.read_text(encoding="utf-8")
    header = _header(path, source)
    kind = _choice(path, header, "zoo", ("faulty", "correct"))
    if kind != path.parent.name:
        raise HeaderError(f"{path}: the header says 'zoo: {kind}', the directory is {path.parent.name!r}")
    faulty = kind == "faulty"
    for key in ("faults", "silent"):
        if faulty != (key in header):
            raise HeaderError(f"{path}: {'missing' if faulty else 'unexpected'} key {key!r} in a {kind} script")
    faults = tuple(part.strip() for part in header["faults"].split(",")) if faulty else ()
    for fault in faults:
        if not FAULT_ID.fullmatch(fault):
            raise HeaderError(f"{path}: {fault!r} is not a fault id; write F and digits, for example F37")
    world = header.get("world", "2")
    if not world.isdecimal() or int(world) < 1:
        raise HeaderError(f"{path}: 'world: {world}' is not a positive integer")
    observable, _, reason = header.get("observable", "yes").partition(",")
    if observable not in ("yes", "no") or (observable == "no" and not reason.strip()):
        raise HeaderError(f"{path}: write 'observable: no, <reason>' or leave the key out")
    return Script(
        path=path,
        faulty=faulty,
        faults=faults,
        silent=faulty and _choice(path, header, "silent", ("yes", "no")) == "yes",
        args=tuple(shlex.split(header.get("args", ""))),
        world=int(world),
        launcher=_choice(path, header, "launcher", ("any", "real", "python"), default="any"),
        needs=header.get("needs"),
        observable=observable == "yes",
        ends=_choice(path, header, "ends", ("done", "crash", "hang"), default="done"),
        fault_lines=_fault_lines(source),
    )


def _header(path: Path, source: str) -> dict[str, str]:
    """Return the `key: value` lines that follow the first paragraph of the docstring."""
    docstring = ast.get_docstring(ast.parse(source, filename=str(path)))
    if not docstring:
        raise HeaderError(f"{path}: no docstring")
    _, _, block = docstring.partition("\n\n")
    header: dict[str, str] = {}
    for line in block.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not value:
            raise HeaderError(f"{path}: {line!r} is not a 'key: value' line")
        if key not in KEYS:
            raise HeaderError(f"{path}: unknown key {key!r}; legal keys: {', '.join(KEYS)}")
        if key in header:
            raise HeaderError(f"{path}: key {key!r} given twice")
        header[key] = value
    return header


def _choice(path: Path, header: dict[str, str], key: str, legal: tuple[str, ...], default: str | None = None) -> str:
    value = header.get(key, default)
    if value is None:
        raise HeaderError(f"{path}: missing key {key!r}")
    if value not in legal:
        raise HeaderError(f"{path}: '{key}: {value}'; legal values: {', '.join(legal)}")
    return value


def _fault_lines(source: str) -> tuple[int, ...]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return tuple(
        token.start[0] for token in tokens if token.type == tokenize.COMMENT and FAULT_COMMENT.fullmatch(token.string)
    )
