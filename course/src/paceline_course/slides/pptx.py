"""A deck as PPTX that may be edited: text as text, tables as tables, figures as pictures, notes as notes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import MSO_ANCHOR
from pptx.util import Inches, Pt

from paceline_course.slides.blocks import Block, Code, Paragraph, Run, Table, blocks
from paceline_course.slides.fill import FilledDeck, FilledSlide

WIDTH, HEIGHT = 13.333, 7.5
_LEFT, _TOP, _ROOM_W, _ROOM_H = 0.7, 1.45, 11.93, 5.4
_SIDE_W, _GAP = 5.4, 0.35
_LEAST_PICTURE = 2.3
_BEFORE = 0.12
"""Above a table or code, since a reader's font may need a line more than was estimated."""
_TEXT, _CODE, _TABLE = 20, 14, 15
_PLAIN_TITLE = 5
"""The layout of python-pptx's own template that has a title and nothing else."""
_INK, _SOFT, _TINT = RGBColor(0x16, 0x20, 0x2B), RGBColor(0x5B, 0x67, 0x73), RGBColor(0xF1, 0xF4, 0xF8)
_FONT, _MONO = "Calibri", "Consolas"


@dataclass(frozen=True)
class Box:
    """A place on a slide, in inches."""

    left: float
    top: float
    width: float
    height: float

    @property
    def emus(self) -> tuple[Any, Any, Any, Any]:
        """As python-pptx takes it."""
        return Inches(self.left), Inches(self.top), Inches(self.width), Inches(self.height)


def write_pptx(deck: FilledDeck, path: Path) -> list[str]:
    """Make the file.

    Returns:
        What has no room, a line for each slide. Widths of letters are estimated, on the wide side.
    """
    presentation = Presentation()
    presentation.slide_width, presentation.slide_height = Inches(WIDTH), Inches(HEIGHT)
    presentation.core_properties.title = deck.title
    problems = []
    for slide in deck.slides:
        made = presentation.slides.add_slide(presentation.slide_layouts[_PLAIN_TITLE])
        over = _first(made, slide) if slide.number == 1 else _usual(made, slide)
        if over > 0:
            problems.append(f"{deck.name}, slide {slide.number}: {over:.1f} inches too long for PPTX")
        _foot(made, deck, slide)
        made.notes_slide.notes_text_frame.text = "\n".join(_plain(block) for block in blocks(slide.notes))
    presentation.save(str(path))
    return problems


def _first(made: Any, slide: FilledSlide) -> float:
    _title(made, slide.title, Box(_LEFT, 2.2, _ROOM_W, 1.6), 44)
    return _stack(made, blocks(slide.text), Box(_LEFT, 4.0, _ROOM_W, 2.6))


def _usual(made: Any, slide: FilledSlide) -> float:
    """Title, text, figure; by how much it is too long, in inches."""
    _title(made, slide.title, Box(_LEFT, 0.45, _ROOM_W, 0.85), 30)
    found = blocks(slide.text)
    if slide.picture is None:
        return _stack(made, found, Box(_LEFT, _TOP, _ROOM_W, _ROOM_H))
    if slide.side:
        over = _stack(made, found, Box(_LEFT, _TOP, _SIDE_W, _ROOM_H))
        left = _LEFT + _SIDE_W + _GAP
        _picture(made, slide, Box(left, _TOP, WIDTH - left - 0.5, _ROOM_H))
        return over
    taken = sum(_height(block, _ROOM_W) for block in found)
    room = _ROOM_H - taken - (0.15 if found else 0.0)
    _stack(made, found, Box(_LEFT, _TOP, _ROOM_W, max(taken, 0.3)))
    _picture(made, slide, Box(_LEFT, _TOP + _ROOM_H - max(room, _LEAST_PICTURE), _ROOM_W, max(room, _LEAST_PICTURE)))
    return max(0.0, _LEAST_PICTURE - room)


def _title(made: Any, text: str, box: Box, size: int) -> None:
    shape = made.shapes.title
    shape.left, shape.top, shape.width, shape.height = box.emus
    frame = shape.text_frame
    frame.word_wrap, frame.vertical_anchor = True, MSO_ANCHOR.MIDDLE
    frame.text = text
    paragraph = frame.paragraphs[0]
    paragraph.alignment = 1
    _look(paragraph.runs[0].font, size, bold=True)


def _stack(made: Any, found: Sequence[Block], box: Box) -> float:
    """Blocks one below the other; by how much they are higher than the box."""
    top, group = box.top, []
    for block in [*found, None]:
        if isinstance(block, Paragraph):
            group.append(block)
            continue
        if group:
            height = sum(_height(each, box.width) for each in group)
            _paragraphs(made, group, Box(box.left, top, box.width, height))
            top, group = top + height, []
        if block is not None:
            height = _height(block, box.width)
            place = Box(box.left, top + _BEFORE, box.width, height - _BEFORE)
            if isinstance(block, Code):
                _code(made, block, place)
            else:
                _table(made, block, place)
            top += height
    return max(0.0, top - box.top - box.height - 0.05)


def _paragraphs(made: Any, group: Sequence[Paragraph], box: Box) -> None:
    frame = made.shapes.add_textbox(*box.emus).text_frame
    frame.word_wrap = True
    frame.margin_left = frame.margin_right = 0
    for number, each in enumerate(group):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        paragraph.space_after = Pt(6)
        lead = "" if not each.level else f"{each.number}.\t" if each.number else ("•\t", "–\t")[min(each.level, 2) - 1]
        if each.level:
            indent = Inches(0.3 * each.level)
            paragraph._p.get_or_add_pPr().set("marL", str(indent))
            paragraph._p.get_or_add_pPr().set("indent", str(-Inches(0.3)))
            _run(paragraph, Run(lead), _TEXT)
        for run in each.runs:
            _run(paragraph, run, _TEXT)


def _run(paragraph: Any, run: Run, size: int) -> None:
    made = paragraph.add_run()
    made.text = run.text
    _look(made.font, size - 2 if run.code else size, bold=run.bold, mono=run.code)
    made.font.italic = run.italic
    if run.link:
        made.hyperlink.address = run.link


def _code(made: Any, block: Code, box: Box) -> None:
    shape = made.shapes.add_textbox(*Box(box.left, box.top + 0.05, box.width, box.height - 0.15).emus)
    shape.fill.solid()
    shape.fill.fore_color.rgb = _TINT
    frame = shape.text_frame
    frame.word_wrap = True  # without it the box is as wide as its text, in the middle
    for number, line in enumerate(block.lines):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        run = paragraph.add_run()
        run.text = line or " "
        _look(run.font, _CODE, mono=True)


def _table(made: Any, block: Table, box: Box) -> None:
    columns = len(block.rows[0])
    frame = made.shapes.add_table(len(block.rows), columns, *box.emus)
    longest = [max(len(row[at].text) for row in block.rows) + 3 for at in range(columns)]
    for at, letters in enumerate(longest):
        frame.table.columns[at].width = Inches(box.width * letters / sum(longest))
    for at, row in enumerate(block.rows):
        for column, cell in enumerate(row):
            place = frame.table.cell(at, column)
            paragraph = place.text_frame.paragraphs[0]
            for run in cell.runs:
                _run(paragraph, Run(run.text, run.bold or at == 0, run.italic, run.code, run.link), _TABLE)
            place.fill.solid()
            place.fill.fore_color.rgb = _TINT if at == 0 else RGBColor(0xFF, 0xFF, 0xFF)


def _picture(made: Any, slide: FilledSlide, box: Box) -> None:
    assert slide.picture is not None
    width, height = slide.picture.size
    scale = min(box.width / width, box.height / height)
    w, h = width * scale, height * scale
    place = Box(box.left + (box.width - w) / 2, box.top + (box.height - h) / 2, w, h)
    shape = made.shapes.add_picture(io.BytesIO(slide.picture.png), *place.emus)
    shape._element._nvXxPr.cNvPr.set("descr", slide.picture.alt)


def _foot(made: Any, deck: FilledDeck, slide: FilledSlide) -> None:
    said = f"Measured: {'; '.join(slide.measured)}" if slide.measured else ""
    for text, box, right in (
        (said, Box(_LEFT, 6.98, 9.6, 0.4), False),
        (f"{deck.title} · {slide.number}", Box(10.4, 6.98, 2.4, 0.4), True),
    ):
        frame = made.shapes.add_textbox(*box.emus).text_frame
        frame.word_wrap = True
        frame.margin_left = frame.margin_right = 0
        paragraph = frame.paragraphs[0]
        paragraph.alignment = 3 if right else 1
        run = paragraph.add_run()
        run.text = text
        _look(run.font, 9)
        run.font.color.rgb = _SOFT


def _look(font: Any, size: int, *, bold: bool = False, mono: bool = False) -> None:
    font.size, font.bold, font.name = Pt(size), bold, _MONO if mono else _FONT
    font.color.rgb = _INK


def _height(block: Block, width: float) -> float:
    """Inches that a block takes; a letter is taken to be half as wide as it is high, of code six tenths."""
    if isinstance(block, Code):
        return len(block.lines) * _CODE * 1.25 / 72 + 0.3 + _BEFORE
    if isinstance(block, Table):
        letters = [max(len(row[at].text) for row in block.rows) + 3 for at in range(len(block.rows[0]))]
        lines = 0
        for row in block.rows:
            rooms = [width * each / sum(letters) - 0.2 for each in letters]
            lines += max(_lines(cell.text, room, _TABLE) for cell, room in zip(row, rooms, strict=True))
        return lines * _TABLE * 1.25 / 72 + len(block.rows) * 0.11 + 0.1 + _BEFORE
    return _lines(block.text, width - 0.3 * block.level, _TEXT) * _TEXT * 1.22 / 72 + 6 / 72


def _lines(text: str, width: float, size: int) -> int:
    return max(1, math.ceil(len(text) * 0.5 * size / 72 / max(width, 0.3)))


def _plain(block: Block) -> str:
    if isinstance(block, Code):
        return "\n".join(block.lines)
    if isinstance(block, Table):
        return "\n".join(" | ".join(cell.text for cell in row) for row in block.rows)
    return ("- " * bool(block.level)) + block.text
