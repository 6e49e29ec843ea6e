"""The text of the QR code: the most important of a certificate in one signed line of about 220 signs.

    PACELINE1/<id>/<level>/<result>/<points>/<most>/<digest>/<fingerprint>/<signature>

Id, digest and signature are in base 32 without padding, the fingerprint is in hexadecimal digits; level is S
(self-checked) or A (attested), result M (merit) or P (passed). The digest is the sha256 of the canonical certificate
without its `proof` and its `paceline.code`. The signature is Ed25519 over the text in front of the last slash. Only
signs of a QR code's alphanumeric set are used, which makes the picture small.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from paceline_course.certificate.keys import PrivateKey, PublicKey, grouped
from paceline_course.certificate.states import Level, RefusedError, Verdict

START = "PACELINE"
_VERSION = "1"
_LONGEST = 400
_LEVELS: dict[str, Level] = {"S": "self-checked", "A": "attested"}
_RESULTS = {"M": "merit", "P": "passed"}
_SHAPE = re.compile(
    r"(?P<id>[A-Z2-7]{26})/(?P<level>[SA])/(?P<result>[MP])/(?P<points>[0-9]{1,5}(?:\.[0-9])?)/(?P<most>[0-9]{1,5}(?:\.[0-9])?)"
    r"/(?P<digest>[A-Z2-7]{52})/(?P<fingerprint>[0-9A-F]{16})/(?P<signature>[A-Z2-7]{103})"
)


@dataclass(frozen=True)
class Facts:
    """What the code says."""

    id: str
    """urn:uuid:..."""
    level: Level
    result: str
    """merit or passed."""
    points: str
    most: str
    digest: str
    """Of the certificate: sha256, hexadecimal."""


def made(facts: Facts, key: PrivateKey) -> str:
    """The text, signed."""
    text = body(facts, key.public)
    return f"{text}/{_base32(key.sign(text.encode()))}"


def body(facts: Facts, key: PublicKey) -> str:
    """What is signed of it."""
    return "/".join(
        [
            START + _VERSION,
            _base32(uuid.UUID(facts.id.removeprefix("urn:uuid:")).bytes),
            facts.level[0].upper(),
            facts.result[0].upper(),
            facts.points,
            facts.most,
            _base32(bytes.fromhex(facts.digest)),
            key.fingerprint.replace(" ", "").upper(),
        ]
    )


def verify_code(text: str, keys: Sequence[PublicKey]) -> Verdict:
    """Check the text of a QR code. It holds no name: that stands in the certificate, which its digest names.

    Args:
        text: as it was scanned.
        keys: that are trusted; the code has only a fingerprint, so without its key nothing can be found out.
    """
    try:
        return _verify(text.strip(), keys)
    except RefusedError as refusal:
        return Verdict(refusal.state, refusal.said)


def _verify(text: str, keys: Sequence[PublicKey]) -> Verdict:
    if not text or len(text) > _LONGEST:
        raise RefusedError("unreadable", f"This is no code: it has {len(text)} signs.")
    version = re.match(START + r"([0-9]+)/", text)
    if version is None:
        raise RefusedError("foreign", "This is no code of a Paceline certificate.")
    if version[1] != _VERSION:
        raise RefusedError(
            "unknown-version", "This code was written by a later version: pip install --upgrade paceline"
        )
    found = _SHAPE.fullmatch(text, version.end())
    if found is None:
        raise RefusedError("damaged", "The code is damaged: signs are missing, or others than it can have stand in it.")
    raw = {name: _from_base32(found[name]) for name in ("id", "digest", "signature")}
    owner = next((key for key in keys if key.fingerprint.replace(" ", "").upper() == found["fingerprint"]), None)
    fingerprint = grouped(found["fingerprint"].lower())
    if owner is None:
        raise RefusedError(
            "wrong-key", f"The code names the key {fingerprint}, which is none of those given: not checked."
        )
    if not owner.verifies(text.rpartition("/")[0].encode(), raw["signature"]):
        raise RefusedError("tampered", "The code was changed after it was signed, or was never signed by that key.")
    level = _LEVELS[found["level"]]
    points = f"{found['points']} of {found['most']} points, {_RESULTS[found['result']]}"
    open_ = ["whose certificate it is: the name stands in the certificate only", "whether it was revoked"]
    if level == "self-checked":
        open_.insert(0, "the result: it was graded on the learner's own computer, where a grade can be invented")
    return Verdict(
        "valid" if level == "attested" else "self-checked",
        f"The key {fingerprint} signed this code: {points}, {level}.",
        proved=(f"a certificate with the digest {raw['digest'].hex()} and this result was signed by that key",),
        open=tuple(open_),
        level=level,
        id=f"urn:uuid:{uuid.UUID(bytes=raw['id'])}",
        result=points,
        fingerprint=fingerprint,
    )


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=")


def _from_base32(text: str) -> bytes:
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    # The last sign has bits that no byte uses: they must be zero, so that there is one spelling.
    if _base32(raw) != text:
        raise RefusedError(
            "damaged", "The code is damaged: one of its parts is written in another way than it was made."
        )
    return raw
