"""Lists of certificates that are no longer good: JSON, signed as certificates are, one list an issuer."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from paceline.records.errors import PacelineError
from paceline_course.certificate.canonical import StrictJsonError, as_file, load
from paceline_course.certificate.credential import as_text, clean_name
from paceline_course.certificate.keys import PrivateKey, PublicKey
from paceline_course.certificate.proof import signed, signer
from paceline_course.certificate.shape import Issuer, Moment, Short, Urn
from paceline_course.certificate.states import RefusedError

TYPE = "PacelineRevocationList"
VERSION = 1


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate that is revoked."""

    id: Urn
    reason: Short
    date: Moment


class RevocationList(msgspec.Struct, frozen=True, kw_only=True):
    """All of one issuer."""

    type: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    issuer: Issuer
    updated: Moment
    revoked: list[Entry]

    def entry(self, name: str) -> Entry | None:
        """Of the certificate with this id."""
        return next((entry for entry in self.revoked if entry.id == name), None)


def read_list(raw: bytes, keys: Sequence[PublicKey], issuer: PublicKey) -> RevocationList:
    """Read a list that speaks for the issuer of a certificate.

    Args:
        raw: the file.
        keys: that are trusted; the list must be signed by one of them, or by the certificate's own.
        issuer: key of the certificate.

    Raises:
        RefusedError: what is wrong with it; the state begins with `list-`.
    """
    found, key = _open(raw)
    if key != issuer.raw and key not in {each.raw for each in keys}:
        raise RefusedError(
            "list-wrong-key",
            f"The revocation list is signed by the key {PublicKey(key).fingerprint}, which is neither one of those "
            "given nor the certificate's.",
        )
    if key != issuer.raw:
        raise RefusedError(
            "list-other-issuer",
            f"The revocation list is of another issuer, {found.issuer.name}: it says nothing about this certificate.",
        )
    return found


def revoke(raw: bytes | None, name: str, reason: str, key: PrivateKey, now: datetime.datetime) -> dict[str, Any]:
    """The list with one certificate more, signed anew.

    Args:
        raw: the list so far, if there is one.
        name: id of the certificate, urn:uuid:...
        reason: in a few words; anyone with the list reads it.
        key: of the issuer; a list that another key signed is left alone.
        now: the date.

    Raises:
        PacelineError: the list is damaged, full or another's, the id is none or stands in it already, there is no
            reason.
    """
    try:
        msgspec.convert(name, Urn)
    except msgspec.ValidationError:
        raise PacelineError(
            f"{name[:80]!r} is no certificate's id",
            hint="--id urn:uuid:... as it stands in the JSON; on the page, urn:uuid: is left out in front",
        ) from None
    reason = clean_name(reason, "the reason")
    if not reason:
        raise PacelineError("there is no reason", hint="--reason 'in a few words'")
    moment = as_text(now)
    issuer_name = key.public.issuer or key.public.fingerprint
    entries: list[dict[str, Any]] = []
    if raw is not None:
        try:
            known = read_list(raw, [], key.public)
        except RefusedError as refusal:
            raise PacelineError(
                "nothing was revoked: the list that is there cannot be used", why=refusal.said, hint="name another file"
            ) from None
        issuer_name = known.issuer.name
        entries = msgspec.to_builtins(known.revoked)
        if known.entry(name) is not None:
            raise PacelineError(f"{name} is revoked already")
    made = {
        "type": TYPE,
        "version": VERSION,
        "issuer": {"id": key.public.did, "type": ["Profile"], "name": issuer_name},
        "updated": moment,
        "revoked": [*entries, {"id": name, "reason": reason, "date": moment}],
    }
    document = signed(made, key, moment)
    try:
        as_file(document)
    except StrictJsonError as error:
        raise PacelineError(
            "nothing was revoked: the list is full",
            why=str(error),
            hint="make a new key, attest with it what is still good, and publish that the old key is not",
        ) from None
    return document


def _open(raw: bytes) -> tuple[RevocationList, bytes]:
    """The list and the key that signed it; who that is is not looked at."""
    try:
        document = load(raw)
    except StrictJsonError as error:
        raise RefusedError("list-unreadable", f"The revocation list cannot be read: {error}.") from None
    if not isinstance(document, dict) or document.get("type") != TYPE:
        raise RefusedError("list-foreign", "The file of the revocation list is no list of Paceline.")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise RefusedError(
            "list-unknown-version", f"The revocation list has the version {version}, which is not known here."
        )
    try:
        found = msgspec.convert(document, RevocationList)
        key, right = signer(document)
    except ValueError as error:
        raise RefusedError("list-damaged", f"The revocation list is damaged: {error}.") from None
    if not right:
        raise RefusedError("list-tampered", "The revocation list was changed after it was signed.")
    if found.issuer.id != key.did:
        raise RefusedError("list-wrong-key", "The revocation list names another issuer than the key that signed it.")
    return found, key.raw
