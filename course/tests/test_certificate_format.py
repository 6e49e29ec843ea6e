"""The signature is that of published standards: their test vectors hold, and plain Python checks our certificates."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from course.tests.test_certificate import KEY, OTHER, made, put, raw
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from paceline_course.certificate.canonical import StrictJsonError, canonical, load
from paceline_course.certificate.keys import PrivateKey, base58, from_base58, from_did, public_text
from paceline_course.certificate.proof import signed, signer, to_sign
from paceline_course.certificate.states import EXIT_CODES

PAGE = Path(__file__).parents[1] / "docs" / "certificate.md"

# From the W3C's "Data Integrity EdDSA Cryptosuites v1.0", test vectors of eddsa-jcs-2022 (its example key included).
EXAMPLE_KEY = "3u2en7t5LR2WtQH5PfFqMqwVHBeXouLzo6haApm8XHqvjxq"
EXAMPLE_PUBLIC = "z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2"
EXAMPLE: dict[str, Any] = {
    "@context": ["https://www.w3.org/ns/credentials/v2", "https://www.w3.org/ns/credentials/examples/v2"],
    "id": "urn:uuid:58172aac-d8ba-11ed-83dd-0b3aef56cc33",
    "type": ["VerifiableCredential", "AlumniCredential"],
    "name": "Alumni Credential",
    "description": "A minimum viable example of an Alumni Credential.",
    "issuer": "https://vc.example/issuers/5678",
    "validFrom": "2023-01-01T00:00:00Z",
    "credentialSubject": {"id": "did:example:abcdefgh", "alumniOf": "The School of Examples"},
}
DOCUMENT_DIGEST = "59b7cb6251b8991add1ce0bc83107e3db9dbbab5bd2c28f687db1a03abc92f19"
SIGNATURE = "z63t83Y53KfzJ5ZosfKTnqfMcKB2dmTrfjSaQjeNNjAD5srBowQfmWqeRb8rRjmeEuCBEsddF9LsVogtuTsijJKh4"
SIGNATURE_HEX = (
    "fc91dec6565f35fbe185a77352e7fc512f95d1904da305cfef32ab8135469301"
    "f5a72d4e7a58368fc6ffc497b44633993bac054e3bc1436e3c846db8f1544503"
)


def example_key() -> PrivateKey:
    """The key of the W3C's examples; two bytes of multicodec stand in front of it."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(from_base58(EXAMPLE_KEY)[2:]))


def test_the_w3cs_test_vector_of_eddsa_jcs_2022_holds() -> None:
    """Key, digest and signature are those that were published, bit for bit."""
    key = example_key()

    document = signed(EXAMPLE, key, "2023-02-24T23:36:38Z", f"https://vc.example/issuers/5678#{EXAMPLE_PUBLIC}")
    config = {name: value for name, value in document["proof"].items() if name != "proofValue"}

    assert key.public.did == f"did:key:{EXAMPLE_PUBLIC}"
    assert from_did(f"did:key:{EXAMPLE_PUBLIC}") == key.public
    assert to_sign(EXAMPLE, config)[32:].hex() == DOCUMENT_DIGEST
    assert document["proof"]["proofValue"] == SIGNATURE
    assert from_base58(SIGNATURE[1:]).hex() == SIGNATURE_HEX


def test_a_proof_with_the_key_in_it_is_checked_and_one_change_is_seen() -> None:
    """The example once more, with its key as did:key."""
    document = signed(EXAMPLE, example_key(), "2023-02-24T23:36:38Z")

    assert signer(document) == (example_key().public, True)
    assert signer({**document, "name": "Another"}) == (example_key().public, False)


def test_rfc_8785s_order_of_names_holds() -> None:
    """Names are sorted by UTF-16, where the smiley comes before a Hebrew letter (test data of the RFC's author)."""
    given_ = (
        rb'{"\u20ac": "Euro Sign", "1": "One", "\u0080": "Control\u007f", "\ud83d\ude02": "Smiley", "\u00f6": '
        rb'"Latin Small Letter O With Diaeresis", "\ufb33": "Hebrew Letter Dalet With Dagesh", "</script>": "Browser '
        rb'Challenge"}'
    )
    wanted = (
        '{"1":"One","</script>":"Browser Challenge","\x80":"Control\x7f","ö":"Latin Small Letter O With Diaeresis",'
        '"€":"Euro Sign","😂":"Smiley","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )

    assert canonical(load(given_)).decode() == wanted


def test_rfc_8785s_escapes_hold() -> None:
    """Two-letter escapes where JSON has them, small hexadecimal digits else, none without need (RFC 8785, 3.2.2.2)."""
    assert canonical(load(rb'["\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/"]')) == (
        '["€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"]'.encode()
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_the_canonical_spelling_is_the_same_value_and_the_only_spelling(value: Any) -> None:
    """It is read back as the same, and however the value was written before, it comes out equal."""
    spelling = canonical(value)

    assert load(spelling) == value
    assert canonical(load(json.dumps(value, indent=3).encode())) == spelling


@pytest.mark.parametrize(
    "value", [1.5, float("nan"), 2**53, {"a": [0.1]}, {1: "a"}, "\ud800", {"\udfff": 1}, b"a", (1,)]
)
def test_what_has_no_certain_spelling_is_refused(value: Any) -> None:
    """Fractions, large numbers, halves of characters, names that are no text, other kinds of values."""
    with pytest.raises(StrictJsonError):
        canonical(value)


@given(st.binary(max_size=80))
def test_base_58_is_read_back(some: bytes) -> None:
    """With leading zeros."""
    assert from_base58(base58(some)) == some


def example_of_the_page() -> str:
    """The program that the reference page gives to those who trust no program of ours."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_ten_lines_of_plain_python_in_the_reference_check_a_certificate(tmp_path: Path) -> None:
    """They need nothing of ours, take the good one, and refuse the changed one and the other key."""
    files = {"good": made(name="Zoë"), "changed": put("paceline/points", "97.5")}
    for name, document in files.items():
        (tmp_path / f"{name}.json").write_bytes(raw(document))
    (tmp_path / "issuer.pub").write_text(public_text(KEY.public))
    (tmp_path / "other.pub").write_text(public_text(OTHER.public))
    program = example_of_the_page()

    def code(name: str, key: str) -> int:
        command = [sys.executable, "-I", "-c", program, f"{name}.json", f"{key}.pub"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert "paceline" not in re.sub(r'\["paceline"\]', "", program)
    assert [code("good", "issuer"), code("changed", "issuer"), code("good", "other")] == [0, 1, 1]


def test_every_state_stands_in_the_reference_with_its_exit_code() -> None:
    """One row each."""
    text = PAGE.read_text()

    assert [state for state, code in EXIT_CODES.items() if f"| {code} | `{state}` |" not in text] == []
