"""Whether a certificate is one: what can be found out without a network, told apart.

The order matters: a file is read, then known as ours, then whole, then signed as it stands, and only then is it asked
by whom, whether it is revoked, and from when it is valid.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline_course.assess.text import visible
from paceline_course.certificate.canonical import StrictJsonError, load
from paceline_course.certificate.compact import body, verify_code
from paceline_course.certificate.keys import PublicKey
from paceline_course.certificate.proof import signer
from paceline_course.certificate.revocation import RevocationList, read_list
from paceline_course.certificate.shape import FORMAT, Certificate, contradiction, facts, read
from paceline_course.certificate.states import RefusedError, State, Verdict

__all__ = ["opened", "verify", "verify_code"]

_CLOCKS = datetime.timedelta(minutes=10)
"""That two machines' clocks may differ."""


def verify(
    raw: bytes,
    keys: Sequence[PublicKey] = (),
    revoked: bytes | None = None,
    now: datetime.datetime | None = None,
) -> Verdict:
    """Check a certificate.

    Args:
        raw: the file, any bytes.
        keys: public keys that are trusted, and got in a way that is.
        revoked: a revocation list, any bytes.
        now: the date to check at; by default this moment.

    Raises:
        PacelineError: only where the library `cryptography` is missing.
    """
    try:
        _, certificate, key = opened(raw)
    except RefusedError as refusal:
        return Verdict(refusal.state, refusal.said)
    known: RevocationList | None = None
    try:
        _trusted(certificate, key, keys)
        known = read_list(revoked, keys, key) if revoked is not None else None
        _in_force(certificate, known, now or datetime.datetime.now(datetime.UTC))
    except RefusedError as refusal:
        return _verdict(refusal.state, refusal.said, certificate, key, known)
    said = f"{_who(certificate)} passed: {_result(certificate)}."
    said += f" {certificate.issuer.name} signed it, on {certificate.valid_from[:10]}."
    state: State = "valid"
    if certificate.paceline.level == "self-checked":
        state = "self-checked"
        said = (
            f"The signature is right, but the key is the learner's own: {_who(certificate)} claims to have passed, "
            f"with {_result(certificate)}. Nobody else vouches for it."
        )
    verdict = _verdict(state, said, certificate, key, known)
    called = next((each.issuer for each in keys if each.raw == key.raw and each.issuer), "")
    if state == "valid" and called not in ("", certificate.issuer.name):
        # Who trusts two keys must not read one issuer's certificate as the other's.
        other = f"that its issuer is {certificate.issuer.name}: the file of the key that you gave says {called}"
        return replace(verdict, open=(visible(other, single=True), *verdict.open))
    return verdict


def opened(raw: bytes) -> tuple[dict[str, Any], Certificate, PublicKey]:
    """A certificate that is whole and signed by the key that it names; whether that key is trusted is not asked.

    Raises:
        RefusedError: it is not.
    """
    try:
        document = load(raw)
    except StrictJsonError as error:
        said = f"This is no JSON that could be signed: {error}."
        if raw.lstrip().startswith((b"<", b"%PDF")):
            said = "This is a page, which is a picture of a certificate: the certificate is the JSON file made with it."
        raise RefusedError("unreadable", said) from None
    ours = document.get("paceline") if isinstance(document, dict) else None
    if not isinstance(ours, dict):
        raise RefusedError("foreign", "This is no certificate of Paceline: it has no member `paceline`.")
    version = ours.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise RefusedError(
            "unknown-version",
            f"It has the format {version}, and this version reads up to {FORMAT}: pip install --upgrade paceline",
        )
    try:
        certificate = read(document)
        key, right = signer(document)
    except ValueError as error:
        raise RefusedError("damaged", f"The certificate is damaged: {error}.") from None
    if not right:
        raise RefusedError("tampered", "The signature does not match: the content was changed after it was signed.")
    if certificate.issuer.id != key.did:
        raise RefusedError("wrong-key", "It is signed by another key than that of the issuer which it names.")
    _agrees(document, certificate, key)
    return document, certificate, key


def _agrees(document: dict[str, Any], certificate: Certificate, key: PublicKey) -> None:
    wrong = contradiction(certificate)
    text, _, _ = certificate.paceline.code.rpartition("/")
    if not wrong and (text != body(facts(document), key) or not _code_holds(certificate.paceline.code, key)):
        wrong = "its short code is not that of its content"
    if wrong:
        raise RefusedError(
            "damaged", f"It is signed, but it contradicts itself: {wrong}. Paceline makes no such certificate."
        )


def _code_holds(code: str, key: PublicKey) -> bool:
    return verify_code(code, [key]).state in ("valid", "self-checked")


def _trusted(certificate: Certificate, key: PublicKey, keys: Sequence[PublicKey]) -> None:
    known = {each.raw for each in keys}
    level = certificate.paceline.level
    if key.raw in known or (not known and level == "self-checked"):
        return
    own = " By its own words it is self-checked: the key is the learner's." if level == "self-checked" else ""
    if known:
        raise RefusedError(
            "wrong-key", f"It is signed, but by the key {key.fingerprint}, which is none of those that you trust.{own}"
        )
    raise RefusedError(
        "wrong-key",
        f"It is signed by the key {key.fingerprint}, and no key was given. Anyone can make a key and call it "
        f"{certificate.issuer.name}: get the issuer's from the issuer.",
    )


def _in_force(certificate: Certificate, known: RevocationList | None, now: datetime.datetime) -> None:
    entry = known.entry(certificate.id) if known else None
    if entry is not None:
        raise RefusedError("revoked", f"It was revoked on {entry.date[:10]}: {entry.reason.rstrip('.')}.")
    if datetime.datetime.fromisoformat(certificate.valid_from) > now + _CLOCKS:
        raise RefusedError("not-yet-valid", f"It is valid from {certificate.valid_from}, which is in the future.")


def _verdict(
    state: State,
    said: str,
    certificate: Certificate,
    key: PublicKey,
    known: RevocationList | None = None,
) -> Verdict:
    level = certificate.paceline.level
    proved = [f"nothing in it was changed since the key {key.fingerprint} signed it"]
    unproved = []
    if level == "self-checked":
        unproved.append("the result: it was graded on the learner's own computer, where a grade can be invented")
        unproved.append("the name: the learner chose it")
    elif state == "wrong-key":
        unproved.append("who holds that key, and so the result and the name")
    elif state != "revoked":
        proved.append("that key is one of those that you gave: whoever holds it vouches for the grading")
        unproved.append("that the learner is who the name says, and worked alone: the issuer knows, or nobody")
    if known is not None and state != "revoked":
        proved.append(f"it is not on the issuer's revocation list of {known.updated[:10]}")
    elif state.startswith("list-"):
        unproved.append("that it was not revoked: the list cannot be used")
    elif state != "revoked":
        unproved.append("that it was not revoked: no revocation list was looked into")
    return Verdict(
        state,
        said,
        proved=tuple(proved),
        open=tuple(unproved),
        level=level,
        id=certificate.id,
        name=certificate.subject.name,
        result=_result(certificate),
        fingerprint=key.fingerprint,
    )


def _who(certificate: Certificate) -> str:
    return certificate.subject.name or "The learner (no name is stated)"


def _result(certificate: Certificate) -> str:
    ours = certificate.paceline
    return f"{ours.points} of {ours.most} points, {ours.result}"
