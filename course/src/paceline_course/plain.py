"""The course's Markdown as plain text: for terminals, and for the heads of exercise files.

It knows what the course uses and no more: headings, emphasis, links, lists, code, and formulae made of the few LaTeX
words below. A test reads every task, hint and explanation and looks for what is left over.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

WIDTH = 96
_MARKS = re.compile(r"(?P<code>`[^`]*`)|\*\*|\$(?P<formula>[^$]+)\$|\[(?P<link>[^\]]+)\]\([^)]+\)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_SIGNS = {"leftarrow": " ← ", "cdot": " · ", "times": " × ", "le": " ≤ ", "ge": " ≥ ", "approx": " ≈ "}
_WORDS = _SIGNS | {
    "log": "log ", "qquad": "   ", "quad": "  ", "sum": "Σ", "infty": "∞", "lVert": "‖", "rVert": "‖",
    "alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "eta": "η", "lambda": "λ", "mu": "μ", "nu": "ν",
    "sigma": "σ", "Sigma": "Σ", "Bigl": "", "Bigr": "",
}  # fmt: skip
_RAISED, _LOWERED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def plain(markdown: str, width: int = WIDTH) -> str:
    """Text of lines of at most `width` characters, as far as words are short enough; code keeps its lines."""
    return "\n".join(line for block in _blocks(markdown) for line in _written(block, width))


def without_title(task: str) -> str:
    """A task without the heading that names its exercise."""
    first, _, rest = task.partition("\n")
    return rest.lstrip("\n") if first.startswith("#") else task


def _blocks(markdown: str) -> Iterator[tuple[str, list[str]]]:
    """(kind, lines) of each block, in order: code, formula, blank, heading, item or words."""
    kind: str = ""
    lines: list[str] = []
    for line in markdown.splitlines():
        inside = kind in ("code", "formula")
        fence, formula = line.startswith("```"), line.startswith("$$")
        if inside:
            ends = fence if kind == "code" else line.rstrip().endswith("$$")
            if not (ends and kind == "code"):
                lines.append(line)
            if ends:
                yield kind, lines
                kind, lines = "", []
            continue
        new = _kind(line, fence, formula)
        # Lines of a paragraph or a list's item go on until something else begins.
        if new == "words" and kind in ("words", "item"):
            lines.append(line.strip())
            continue
        if kind:
            yield kind, lines
        kind, lines = new, [] if fence else [line.rstrip()]
        if new in ("blank", "heading") or (formula and line.rstrip().endswith("$$") and len(line.rstrip()) > 2):
            yield kind, lines
            kind, lines = "", []
    if kind:
        yield kind, lines


def _kind(line: str, fence: bool, formula: bool) -> str:
    if fence or formula:
        return "code" if fence else "formula"
    if not line.strip():
        return "blank"
    if line.startswith("#"):
        return "heading"
    return "item" if _ITEM.match(line.lstrip()) else "words"


def _written(block: tuple[str, list[str]], width: int) -> list[str]:
    kind, lines = block
    if kind == "code":
        return [f"    {line}".rstrip() for line in lines]
    text = " ".join(lines)
    if kind == "formula":
        return [f"    {_formula(text.strip().strip('$'))}"]
    if kind == "blank":
        return [""]
    if kind == "heading":
        text = text.lstrip("# ")
    indent = " " * (len(text) - len(text.lstrip()))
    hanging = indent + "  " if kind == "item" else indent
    text = _MARKS.sub(_unmarked, text)
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False) or [""]


def _unmarked(mark: re.Match[str]) -> str:
    if mark["formula"]:
        return _formula(mark["formula"])
    return mark["code"] or mark["link"] or ""


def _formula(latex: str) -> str:
    """A formula in one line of Unicode."""
    text = re.sub(r"\\(?:text|operatorname|mathrm)\{([^{}]*)\}", r"\1", latex)
    text = re.sub(r"\\sqrt\s+(\w)", r"√\1", text)
    # From the inside out, so that a fraction may stand in a fraction.
    while text != (text := re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", _fraction(text))):
        pass
    text = re.sub(r"\^(\d)", lambda found: found[1].translate(_RAISED), text)
    text = re.sub(r"_(\d)", lambda found: found[1].translate(_LOWERED), text)
    text = text.replace(r"\,", " ")
    # LaTeX drops the blank after a word; before a sign it is kept here, where nothing else sets the sign apart.
    text = re.sub(rf" ?\\({'|'.join(_SIGNS)})\b ?", lambda found: _SIGNS[found[1]], text)
    text = re.sub(r"\\([A-Za-z]+)(?: (?=\w|\\|$))?", lambda found: _WORDS.get(found[1], found[0]), text)
    return re.sub(r"‖ ?([^‖]*?) ?‖", r"‖\1‖", text).strip()


def _fraction(text: str) -> str:
    return re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", lambda found: f"{_grouped(found[1])} / {_grouped(found[2])}", text)


def _grouped(part: str) -> str:
    return f"({part})" if " " in part.strip() else part
