"""A certificate to look at: one HTML page, A4 across, that needs nothing else; and the same as PDF.

The page is a picture of the JSON file, which is the certificate. It says so, and its QR code can be checked.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline.report.page.theme import LIGHT
from paceline_course.certificate.keys import PublicKey, grouped
from paceline_course.certificate.shape import Certificate, Part, facts
from paceline_course.certificate.states import Level

_BAR = 100
"""Width of a bar in units of its picture."""
_LEVEL: dict[Level, tuple[str, str]] = {
    "self-checked": (
        "Self-checked",
        "Graded and signed on the learner’s own computer with the learner’s own key. The signature proves that nothing "
        "was changed since. It does not prove the result or the name: nobody else has looked.",
    ),
    "attested": (
        "Attested",
        "Signed by the issuer, who vouches that the grading ran under the issuer’s control. The signature proves that "
        "nothing was changed since. Who the learner is, and that the work is theirs, only the issuer can know.",
    ),
}


def as_html(document: dict[str, Any], certificate: Certificate, key: PublicKey) -> str:
    """The page.

    Args:
        document: the certificate as it was read; it must be whole and signed by `key`.
        certificate: the same with types.
        key: that signed it.
    """
    ours = certificate.paceline
    badge, meaning = _LEVEL[ours.level]
    return _template().render(
        certificate=certificate,
        ours=ours,
        name=certificate.subject.name,
        course=certificate.subject.achievement.name,
        badge=badge,
        meaning=meaning,
        attested=ours.level == "attested",
        date=_in_words(certificate.valid_from),
        parts=[_bar(part) for part in ours.parts],
        digest=_short(facts(document).digest),
        submission=_short(ours.submission),
        grader=_short(ours.grader),
        fingerprint=key.fingerprint,
        qr=_qr(ours.code),
        colours=LIGHT,
        bar=_BAR,
    )


def write_pdf(page: Path, to: Path) -> None:
    """Print it with Chromium, whole or not at all.

    Raises:
        PacelineError: there is none, or it failed.
    """
    from paceline_course.browser import print_pdf

    with tempfile.TemporaryDirectory(prefix="paceline-certificate-") as folder:
        made = Path(folder) / "certificate.pdf"
        print_pdf(page.resolve(), made)
        write_atomic(to, made.read_bytes())


def _bar(part: Part) -> dict[str, Any]:
    reached = float(part.points) / float(part.most) if float(part.most) else 0.0
    return {"part": part, "width": f"{_BAR * min(1.0, reached):.2f}"}


def _short(digest: str) -> str:
    return grouped(digest[:16])


def _in_words(moment: str) -> str:
    day = datetime.datetime.fromisoformat(moment)
    # Not strftime: its names of months follow the machine's language.
    months = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
              "November", "December")  # fmt: skip
    return f"{day.day} {months[day.month - 1]} {day.year}"


def _qr(text: str) -> Markup:
    """The code as a picture; its text is all of an alphanumeric set, which keeps it to about 53 x 53 squares."""
    try:
        import segno
    except ImportError as error:
        raise PacelineError("the page of a certificate needs the library segno", hint="pip install ./course") from error
    code = segno.make_qr(text, error="m", boost_error=False)
    # The text is no secret and the picture has no text of its own: nothing in it comes from a name.
    return Markup(code.svg_inline(border=0, omitsize=True, dark=LIGHT["ink"], svgclass="qr", lineclass=None))


def _policy(style: str) -> str:
    """Nothing may be loaded or run; of styles only the page's own, by its digest."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["policy"] = _policy
    return environment.from_string(Path(__file__).with_name("certificate.html.j2").read_text(encoding="utf-8"))
