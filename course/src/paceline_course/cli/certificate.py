"""`paceline learn certificate`: a grade that is signed. The work is done in `paceline_course.certificate`."""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline_course.certificate.states import Level, Verdict

_LEARNER = "The learner's own key"
_CODE = b"PACELINE"
_File = Annotated[Path, typer.Argument(metavar="FILE", help="Certificate, a JSON file.", show_default=False)]


def issue(
    grade: Annotated[
        Path,
        typer.Argument(metavar="GRADE", help="grade.json of a final assessment, or its folder.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Learner's name. [default: the grade's]", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="Instructor's private key, for an attested certificate. [default: your own key, self-checked]",
        ),
    ] = None,
    issuer: Annotated[
        str | None, typer.Option("--issuer", metavar="NAME", help="Issuer's name, with --key. [default: the key's]")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = Path("certificate"),
) -> None:
    """Make a certificate from a grade: JSON, HTML, and PDF where a Chromium is installed."""
    from paceline_course.assess.grade import read_grade
    from paceline_course.certificate.canonical import as_file
    from paceline_course.certificate.credential import Holder, clean_name, must_be_fit
    from paceline_course.certificate.credential import issue as made
    from paceline_course.certificate.keys import learner_key, read_private
    from paceline_course.content import load_course

    found = read_grade(grade)
    must_be_fit(found)  # before a key is made for it
    if key is None and issuer is not None:
        raise PacelineError("--issuer needs --key", hint="without a key of an issuer, the certificate is self-checked")
    who = clean_name(found.learner if name is None else name, "the learner's name")
    stem = out / (re.sub(r"[^\w.-]+", "-", who).strip("-._")[:40] or "certificate")
    file = stem.with_name(stem.name + ".json")
    for each in (file, *_pages(stem)):
        if os.path.lexists(each):
            raise PacelineError(f"{each} exists", hint="another --out: a certificate is never overwritten")
    signer = read_private(key) if key is not None else learner_key()
    named = _LEARNER if key is None else (issuer if issuer is not None else signer.issuer).strip()
    if not named:
        raise PacelineError(f"{key} does not say whose it is", hint="--issuer 'Name of the issuer'")
    level: Level = "self-checked" if key is None else "attested"
    holder = Holder(who, level, named, load_course().title)
    document = made(found, holder, signer, datetime.datetime.now(datetime.UTC))
    _write(as_file(document), file, document["id"], level)


def _write(raw: bytes, file: Path, name: str, level: str) -> None:
    from paceline.records.rundir import write_atomic
    from paceline_course.certificate.page import as_html
    from paceline_course.certificate.verify import opened

    document, certificate, key = opened(raw)
    page = as_html(document, certificate, key)  # before anything is written: it may lack a library
    write_atomic(file, raw)
    print(f"{level} certificate {name}, signed by the key {key.fingerprint}")
    print(file)
    _show(page, file.parent / file.stem)


def _pages(stem: Path) -> tuple[Path, Path]:
    return stem.with_name(stem.name + ".html"), stem.with_name(stem.name + ".pdf")


def _show(page: str, stem: Path) -> None:
    """Write the page, and its PDF where that can be made."""
    from paceline.records.rundir import write_atomic
    from paceline_course.browser import chromium
    from paceline_course.certificate.page import write_pdf

    html, pdf = _pages(stem)
    write_atomic(html, page.encode())
    print(html)
    if chromium() is None:
        print("no PDF was made: that needs a Chromium on PATH; the HTML can be printed from any browser")
        return
    try:
        write_pdf(html, pdf)
    except PacelineError as error:
        print(f"no PDF was made: {error.what}; the HTML can be printed from any browser")
        return
    print(pdf)


def verify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Certificate, or the text of its QR code; - for standard input.", show_default=False
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="PUB",
            help="Public key that you trust: a file, or did:key:...; can be repeated.",
        ),
    ] = None,
    revoked: Annotated[Path | None, typer.Option("--revoked", metavar="LIST", help="Issuer's revocation list.")] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Check a certificate and report what it proves.

    Exit code 0 only when it is attested by a key that you gave.
    """
    from paceline_course.certificate.compact import verify_code
    from paceline_course.certificate.keys import read_public
    from paceline_course.certificate.verify import verify as check

    trusted = [read_public(each) for each in keys or []]
    raw = _bytes(file)
    if raw.lstrip().startswith(_CODE):
        if revoked is not None:
            raise PacelineError("--revoked needs the certificate", hint="a code alone is not looked up in a list")
        verdict = verify_code(raw.decode("utf-8", "replace"), trusted)
    else:
        verdict = check(raw, trusted, None if revoked is None else _bytes(revoked))
    print(json.dumps(_as_object(verdict), ensure_ascii=False) if output_format is Format.JSON else _as_text(verdict))
    if verdict.exit_code:
        raise typer.Exit(verdict.exit_code)


def show(
    file: _File,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write into. [default: the certificate's]")
    ] = None,
) -> None:
    """Write the page of a certificate again, and its PDF where a Chromium is installed.

    The certificate itself does not change.
    """
    from paceline_course.certificate.page import as_html
    from paceline_course.certificate.states import EXIT_CODES, RefusedError
    from paceline_course.certificate.verify import opened

    try:
        document, certificate, key = opened(_bytes(file))
    except RefusedError as refused:
        raise PacelineError(
            f"{file} makes no page: {refused.state}", why=refused.said, exit_code=EXIT_CODES[refused.state]
        ) from None
    stem = (out or file.parent) / file.stem
    if file.resolve() in [each.resolve() for each in _pages(stem)]:
        raise PacelineError(f"the page would replace the certificate {file}", hint="another --out, or name it .json")
    _show(as_html(document, certificate, key), stem)


def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Issuer's name, as certificates show it.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = Path(),
) -> None:
    """Make an instructor's pair of keys: a private file to keep and a public file to publish."""
    from paceline_course.certificate.credential import clean_name
    from paceline_course.certificate.keys import make_pair, read_public

    issuer = clean_name(name, "the issuer's name")
    if not issuer:
        raise PacelineError("the issuer has no name", hint="paceline learn certificate key 'Name of the issuer'")
    private, public = make_pair(issuer, out)
    found = read_public(str(public))
    print(f"{private}  private: only you can read it; it signs, so keep it and give it to nobody")
    print(f"{public}  public: publish it, with the fingerprint {found.fingerprint}")
    print(found.did)


def revoke(
    file: Annotated[
        Path, typer.Argument(metavar="LIST", help="Revocation list, created if it does not exist.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--id", metavar="URN", help="Id of the certificate.", show_default=False)],
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Reason in a few words, which is public.", show_default=False),
    ],
    private: Annotated[Path, typer.Option("--key", metavar="FILE", help="Issuer's private key.", show_default=False)],
) -> None:
    """Add a certificate to the issuer's revocation list and sign the list again."""
    from paceline.records.rundir import write_atomic
    from paceline_course.certificate.canonical import as_file
    from paceline_course.certificate.keys import read_private
    from paceline_course.certificate.revocation import revoke as listed

    signer = read_private(private)
    before = _bytes(file) if os.path.lexists(file) else None
    document = listed(before, name, reason, signer, datetime.datetime.now(datetime.UTC))
    write_atomic(file, as_file(document))
    print(f"{file}: {len(document['revoked'])} revoked; publish it where the certificates are checked")


def _bytes(file: Path) -> bytes:
    """A file, as far as it is read at all."""
    from paceline_course.certificate.canonical import LARGEST

    if str(file) == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST + 1)
    except OSError as error:
        raise PacelineError(f"{file} cannot be read", why=error.strerror or str(error)) from error


def _as_object(verdict: Verdict) -> dict[str, Any]:
    return {
        "state": verdict.state,
        "exit_code": verdict.exit_code,
        "said": verdict.said,
        "proved": list(verdict.proved),
        "not_proved": list(verdict.open),
        "level": verdict.level,
        "id": verdict.id,
        "name": verdict.name,
        "result": verdict.result,
        "fingerprint": verdict.fingerprint,
    }


def _as_text(verdict: Verdict) -> str:
    lines = [f"{verdict.state}: {verdict.said}"]
    rows = [("certificate", verdict.id), ("name", verdict.name), ("result", verdict.result)]
    rows += [("level", verdict.level or ""), ("key", verdict.fingerprint)]
    known = [f"  {title:<12} {value}" for title, value in rows if value]
    known += [f"  {'proved' if not at else '':<12} {each}" for at, each in enumerate(verdict.proved)]
    known += [f"  {'not proved' if not at else '':<12} {each}" for at, each in enumerate(verdict.open)]
    return "\n".join([*lines, *([""] if known else []), *known])
