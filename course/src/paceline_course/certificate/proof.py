"""The signature inside a document: a Data Integrity proof of the suite eddsa-jcs-2022, as the W3C defined it.

What is signed are two digests one behind the other: sha256 of the canonical proof without its value, and sha256 of the
canonical document without its proof. (W3C Recommendation "Data Integrity EdDSA Cryptosuites v1.0", 3.3.)
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from paceline_course.certificate.canonical import canonical
from paceline_course.certificate.keys import PrivateKey, PublicKey, base58, from_base58, from_did

SUITE = "eddsa-jcs-2022"


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """As it stands in the document. A field that is not known might change its meaning, so there may be none."""

    type: str
    cryptosuite: str
    created: str
    method: str = msgspec.field(name="verificationMethod")
    purpose: str = msgspec.field(name="proofPurpose")
    context: Any = msgspec.field(name="@context", default=None)
    value: str = msgspec.field(name="proofValue")


def signed(document: dict[str, Any], key: PrivateKey, created: str, method: str = "") -> dict[str, Any]:
    """The document with its proof.

    Args:
        document: without `proof`.
        key: that signs.
        created: UTC, ISO 8601, as 2026-01-31T12:00:00Z.
        method: where the public key is found; by default in its own did:key.
    """
    did = key.public.did
    proof: dict[str, Any] = {
        "type": "DataIntegrityProof",
        "cryptosuite": SUITE,
        "created": created,
        "verificationMethod": method or f"{did}#{did.removeprefix('did:key:')}",
        "proofPurpose": "assertionMethod",
    }
    if "@context" in document:
        proof["@context"] = document["@context"]
    value = "z" + base58(key.sign(to_sign(document, proof)))
    return {**document, "proof": {**proof, "proofValue": value}}


def to_sign(document: dict[str, Any], proof: dict[str, Any]) -> bytes:
    """The 64 bytes that a signature is over; neither has its own signature in it."""
    return hashlib.sha256(canonical(proof)).digest() + hashlib.sha256(canonical(document)).digest()


def signer(document: dict[str, Any]) -> tuple[PublicKey, bool]:
    """The key that a document says it was signed with, and whether it was.

    Raises:
        ValueError: there is no proof of this kind in it; the text says what is wrong with it.
    """
    try:
        proof = msgspec.convert(document.get("proof"), Proof)
    except msgspec.ValidationError as error:
        raise ValueError(f"proof: {error}") from None
    if (proof.type, proof.cryptosuite, proof.purpose) != ("DataIntegrityProof", SUITE, "assertionMethod"):
        raise ValueError(f"proof: it is no DataIntegrityProof of {SUITE} for an assertionMethod")
    did, _, inner = proof.method.partition("#")
    try:
        key = from_did(did)
        signature = from_base58(proof.value.removeprefix("z"))
    except ValueError:
        raise ValueError("proof: its key or its value is written wrongly") from None
    if did != f"did:key:{inner}" or not proof.value.startswith("z") or len(signature) != 64:
        raise ValueError("proof: its key or its value is written wrongly")
    rest = {name: value for name, value in document.items() if name != "proof"}
    config = {name: value for name, value in document["proof"].items() if name != "proofValue"}
    same = config.get("@context") == rest.get("@context")
    return key, same and key.verifies(to_sign(rest, config), signature)
