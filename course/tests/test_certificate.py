"""A certificate is what it was signed as, or it is said in which way it is not."""

from __future__ import annotations

import copy
import datetime
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_course.assess.grade import Grade, Line
from paceline_course.certificate import compact
from paceline_course.certificate.canonical import LARGEST
from paceline_course.certificate.credential import Holder, issue
from paceline_course.certificate.keys import PrivateKey, base58, new_key
from paceline_course.certificate.proof import signed, to_sign
from paceline_course.certificate.revocation import revoke
from paceline_course.certificate.shape import facts
from paceline_course.certificate.states import EXIT_CODES, Level, State
from paceline_course.certificate.verify import verify

NOW = datetime.datetime(2026, 3, 2, 9, 30, tzinfo=datetime.UTC)
KEY = new_key("Institute of Parallel Things")
OTHER = new_key("Institute of Parallel Things")
LEARNER = new_key()
TITLE = "A course"
Document = dict[str, Any]


def grade(**changes: Any) -> Grade:
    """A final one that passed with merit: 87.5 of 100."""

    def line(name: str, points: float, most: float, gate: bool = False) -> Line:
        return Line(
            id=name, title=f"Line {name}", points=points, most=most, gate=gate,
            state="passed" if points == most else "partly",
        )  # fmt: skip

    lines = [
        line("A.oracle", 30, 30, gate=True),
        line("B.target", 22.5, 25),
        line("C.time", 20, 25),
        line("D.words", 15, 20),
    ]
    given_ = {
        "kind": "final", "learner": "Ada Lovelace", "submission": "ab" * 32, "grader": "cd" * 32, "course": "1.0",
        "nonce": "77" * 16, "seeds": {"data": 2**62 + 1}, "started_at": "2026-03-01T10:00:00Z", "seconds": 812.4,
        "machine": {"processor": "a processor", "cores": "2"}, "target": 0.86, "lines": lines, "gaps": ["the network"],
    } | changes  # fmt: skip
    return Grade(**given_)


@cache
def _made(level: Level, key: PrivateKey, name: str) -> Document:
    return issue(grade(), Holder(name, level, "Institute of Parallel Things", TITLE), key, NOW)


def made(level: Level = "attested", key: PrivateKey = KEY, name: str = "Ada Lovelace") -> Document:
    """A certificate that may be changed."""
    return copy.deepcopy(_made(level, key, name))


def raw(document: Any) -> bytes:
    """As a file."""
    return json.dumps(document, indent=1, ensure_ascii=False).encode()


def put(path: str, value: Any, document: Document | None = None) -> Document:
    """The document with another value, not signed anew; a path of names and numbers with slashes."""
    document = made() if document is None else document
    *way, last = [int(word) if word.isdigit() else word for word in path.split("/")]
    inner: Any = document
    for word in way:
        inner = inner[word]
    inner[last] = value
    return document


def without(path: str) -> Document:
    """The document without a member."""
    document = made()
    *way, last = path.split("/")
    inner: Any = document
    for word in way:
        inner = inner[word]
    del inner[last]
    return document


def resigned(document: Document, key: PrivateKey = KEY, *, code: bool = True) -> Document:
    """Signed anew by whoever has that key, the short code as well; the issuer's id stays what it is."""
    document = {name: value for name, value in document.items() if name != "proof"}
    if code:
        document["paceline"]["code"] = compact.made(facts(document), key)
    return signed(document, key, "2026-03-02T09:30:00Z")


def forged_by(key: PrivateKey) -> Document:
    """A certificate with the issuer's name, made by someone else from one end to the other."""
    return resigned(put("issuer/id", key.public.did), key)


def many_points() -> Document:
    """100 points of 100 in the total, but not in the lines, and signed with the right key."""
    document = put("paceline/points", "100")
    document["credentialSubject"]["result"][-1]["value"] = "100"
    return resigned(document)


def named(name: str) -> Document:
    """With a name that `issue` refuses, signed with the right key."""
    document = put("credentialSubject/name", name)
    document["credentialSubject"]["identifier"][0]["identityHash"] = name
    return resigned(document)


def failed_gate() -> Document:
    """A gate line that did not pass, signed with the right key."""
    return resigned(put("paceline/lines/0/state", "failed"))


def without_a_part() -> Document:
    """Three parts and their results, signed with the right key."""
    document = made()
    del document["paceline"]["parts"][-1], document["credentialSubject"]["result"][-2]
    return resigned(document)


def context_of_its_own() -> Document:
    """A proof whose context is not the document's, signed with the right key."""
    document = made()
    proof = {name: value for name, value in document.pop("proof").items() if name != "proofValue"} | {"@context": []}
    return {**document, "proof": {**proof, "proofValue": "z" + base58(KEY.sign(to_sign(document, proof)))}}


def with_proof(**changes: Any) -> Document:
    """Members of the proof replaced."""
    document = made()
    document["proof"] |= changes
    return document


FOREIGN_BADGE = {
    "@context": ["https://www.w3.org/ns/credentials/v2"],
    "type": ["VerifiableCredential", "OpenBadgeCredential"],
    "id": "urn:uuid:00000000-0000-4000-8000-000000000000",
    "issuer": {"id": "https://badges.example", "type": ["Profile"], "name": "Someone"},
    "credentialSubject": {"type": ["AchievementSubject"]},
}
TEXT = raw(made()).decode()

FORGED: dict[str, tuple[State, Callable[[], bytes]]] = {
    "an empty file": ("unreadable", lambda: b""),
    "only white space": ("unreadable", lambda: b" \n\t "),
    "torn in the middle": ("unreadable", lambda: raw(made())[:2000]),
    "the last bracket is missing": ("unreadable", lambda: raw(made()).rstrip()[:-1]),
    "the first bracket is missing": ("unreadable", lambda: raw(made())[1:]),
    "no text at all": ("unreadable", lambda: bytes(range(256))),
    "another encoding": ("unreadable", lambda: TEXT.encode("utf-16")),
    "Latin-1": ("unreadable", lambda: raw(made(name="Zoë")).decode().encode("latin-1")),
    "a byte order mark": ("unreadable", lambda: b"\xef\xbb\xbf" + raw(made())),
    "the name stands twice": (
        "unreadable", lambda: TEXT.replace('"credentialSubject": {', '"credentialSubject": {"name": "Eve",').encode()),
    "a member of the whole twice": ("unreadable", lambda: TEXT.replace("{", '{"id": "urn:uuid:0",', 1).encode()),
    "NaN": ("unreadable", lambda: TEXT.replace('"87.5"', "NaN").encode()),
    "infinity": ("unreadable", lambda: TEXT.replace('"87.5"', "-Infinity").encode()),
    "a number with a fraction": ("unreadable", lambda: TEXT.replace('"87.5"', "87.5").encode()),
    "a number that doubles cannot hold": ("unreadable", lambda: TEXT.replace('"87.5"', "9007199254740993").encode()),
    "a number of ten thousand digits": ("unreadable", lambda: TEXT.replace('"87.5"', "9" * 10_000).encode()),
    "text behind the end": ("unreadable", lambda: raw(made()) + b"and more"),
    "two certificates in one file": ("unreadable", lambda: raw(made()) * 2),
    "larger than is read": ("unreadable", lambda: raw(made()) + b" " * LARGEST),
    "brackets without end": ("unreadable", lambda: b"[" * 100_000),
    "nested inside": ("unreadable", lambda: raw(put("paceline/gaps", json.loads("[" * 60 + "]" * 60)))),
    "half a character": ("unreadable", lambda: TEXT.replace("Ada", "\\ud800").encode()),
    "the page instead of the file": ("unreadable", lambda: b"<!doctype html><title>Certificate</title>"),
    "a list": ("foreign", lambda: raw([made()])),
    "a number": ("foreign", lambda: b"1"),
    "null": ("foreign", lambda: b"null"),
    "another's badge": ("foreign", lambda: raw(FOREIGN_BADGE)),
    "without what is ours": ("foreign", lambda: raw(without("paceline"))),
    "ours is a text": ("foreign", lambda: raw(put("paceline", "format 1"))),
    "a revocation list": ("foreign", lambda: raw(revoke(None, made()["id"], "no", KEY, NOW))),
    "of a later format": ("unknown-version", lambda: raw(put("paceline/format", 2))),
    "of a later format, signed so": ("unknown-version", lambda: raw(resigned(put("paceline/format", 2)))),
    "the format is text": ("damaged", lambda: raw(put("paceline/format", "1"))),
    "the format is true": ("damaged", lambda: raw(put("paceline/format", True))),
    "the format is 0": ("damaged", lambda: raw(put("paceline/format", 0))),
    **{
        f"without {path}": ("damaged", lambda path=path: raw(without(path)))
        for path in (
            "@context", "id", "type", "issuer", "issuer/id", "validFrom", "credentialSubject", "proof",
            "credentialSubject/achievement", "credentialSubject/result", "proof/proofValue", "proof/created",
            "paceline/level", "paceline/points", "paceline/lines", "paceline/submission", "paceline/code",
        )
    },
    "a level that there is not": ("damaged", lambda: raw(put("paceline/level", "gold"))),
    "a practice": ("damaged", lambda: raw(put("paceline/kind", "practice"))),
    "points as a number": ("damaged", lambda: raw(put("paceline/points", 87))),
    "points below zero": ("damaged", lambda: raw(put("paceline/points", "-1"))),
    "an id of another kind": ("damaged", lambda: raw(put("id", "https://example.org/1"))),
    "a date of another kind": ("damaged", lambda: raw(put("validFrom", "yesterday"))),
    "a day that there is not, signed": ("damaged", lambda: raw(resigned(put("validFrom", "2026-02-30T00:00:00Z")))),
    "another kind of proof": ("damaged", lambda: raw(with_proof(cryptosuite="eddsa-rdfc-2022"))),
    "a proof for another purpose": ("damaged", lambda: raw(with_proof(proofPurpose="authentication"))),
    "a proof with a member more": ("damaged", lambda: raw(with_proof(expires="2099-01-01T00:00:00Z"))),
    "two proofs": ("damaged", lambda: raw(put("proof", [made()["proof"]] * 2))),
    "a signature that is no base 58": ("damaged", lambda: raw(with_proof(proofValue="z0OIl"))),
    "a signature without its z": ("damaged", lambda: raw(with_proof(proofValue=made()["proof"]["proofValue"][1:]))),
    "a short signature": ("damaged", lambda: raw(with_proof(proofValue="z" + base58(bytes(range(1, 64)))))),
    "a key that is none": ("damaged", lambda: raw(with_proof(verificationMethod="did:key:zabc#zabc"))),
    "a key on a web page": ("damaged", lambda: raw(with_proof(verificationMethod="https://keys.example/1#key"))),
    "a second key behind the first": (
        "damaged", lambda: raw(with_proof(verificationMethod=f"{KEY.public.did}#{OTHER.public.did[8:]}"))),
    "more points than its lines, signed": ("damaged", lambda: raw(many_points())),
    "a failed gate, signed": ("damaged", lambda: raw(failed_gate())),
    "merit that it has not, signed": ("damaged", lambda: raw(resigned(put("paceline/merit_points", 90)))),
    "too few points, signed": ("damaged", lambda: raw(resigned(put("paceline/pass_points", 88)))),
    "a line twice, signed": ("damaged", lambda: raw(resigned(put("paceline/lines/1/id", "A.oracle")))),
    "points beyond all sense, signed": ("damaged", lambda: raw(resigned(put("paceline/lines/0/most", "9" * 9)))),
    "a line above its maximum, signed": ("damaged", lambda: raw(resigned(put("paceline/lines/0/most", "29")))),
    "three parts, signed": ("damaged", lambda: raw(without_a_part())),
    "parts in another order, signed": (
        "damaged", lambda: raw(resigned(put("paceline/parts", made()["paceline"]["parts"][::-1])))),
    "a line break behind its id, signed": (
        "damaged", lambda: raw(resigned(put("id", made()["id"] + "\n"), code=False))),
    "a line break behind points, signed": ("damaged", lambda: raw(resigned(put("paceline/lines/0/points", "30\n")))),
    "a name that a terminal obeys, signed": ("damaged", lambda: raw(named("\x1b[2K\rvalid: Ada passed"))),
    "a name with its direction turned, signed": ("damaged", lambda: raw(named("Ada\u202eecalevoL"))),
    "an issuer on a line of its own, signed": ("damaged", lambda: raw(resigned(put("issuer/name", "I.\nvalid: A")))),
    "a member of the proof that a terminal obeys": ("damaged", lambda: raw(with_proof(**{"\x1b[2K\rvalid": "1"}))),
    "results that are not its points, signed": (
        "damaged", lambda: raw(resigned(put("credentialSubject/result/0/value", "29")))),
    "two people, signed": (
        "damaged", lambda: raw(resigned(put("credentialSubject/identifier/0/identityHash", "Eve")))),
    "the code of another certificate, signed": (
        "damaged", lambda: raw(resigned(put("paceline/code", made(name="Eve")["paceline"]["code"]), code=False))),
    "no code, signed": ("damaged", lambda: raw(resigned(put("paceline/code", "none"), code=False))),
    "another name": ("tampered", lambda: raw(put("credentialSubject/name", "Eve"))),
    "a name that looks the same": ("tampered", lambda: raw(put("credentialSubject/name", "Аda Lovelace"))),
    "the name taken away": ("tampered", lambda: raw(without("credentialSubject/name"))),
    "more points": ("tampered", lambda: raw(put("paceline/points", "97.5"))),
    "the same points, written otherwise": ("tampered", lambda: raw(put("paceline/points", "87.50"))),
    "attested, though self-checked": (
        "tampered", lambda: raw(put("paceline/level", "attested", made("self-checked", LEARNER)))),
    "another issuer's name": ("tampered", lambda: raw(put("issuer/name", "A better institute"))),
    "another issuer's id": ("tampered", lambda: raw(put("issuer/id", OTHER.public.did))),
    "another date": ("tampered", lambda: raw(put("validFrom", "2025-03-02T09:30:00Z"))),
    "another day of signing": ("tampered", lambda: raw(with_proof(created="2025-03-02T09:30:00Z"))),
    "another work": ("tampered", lambda: raw(put("paceline/submission", "ef" * 32))),
    "another seed": ("tampered", lambda: raw(put("paceline/seeds/data", "7"))),
    "another id": ("tampered", lambda: raw(put("id", "urn:uuid:00000000-0000-4000-8000-000000000000"))),
    "a gap hidden": ("tampered", lambda: raw(put("paceline/gaps", []))),
    "a line better than it was": ("tampered", lambda: raw(put("paceline/lines/1/state", "passed"))),
    "a member more": ("tampered", lambda: raw({**made(), "honours": "all"})),
    "a member more inside": ("tampered", lambda: raw(put("paceline/honours", "all"))),
    "another short code": ("tampered", lambda: raw(put("paceline/code", made(name="Eve")["paceline"]["code"]))),
    "another context": ("tampered", lambda: raw(put("@context/2", {"paceline": "https://example.org"}))),
    "another context in the proof": ("tampered", lambda: raw(with_proof(**{"@context": []}))),
    "a context of the proof's own, signed": ("tampered", lambda: raw(context_of_its_own())),
    "another's proof": ("tampered", lambda: raw(put("proof", made(name="Eve")["proof"]))),
    "another's key named": (
        "tampered", lambda: raw(with_proof(verificationMethod=f"{OTHER.public.did}#{OTHER.public.did[8:]}"))),
    "a signature of zeros": ("tampered", lambda: raw(with_proof(proofValue="z" + base58(bytes(64))))),
    "forged with a key of one's own": ("wrong-key", lambda: raw(forged_by(OTHER))),
    "one's own key, the issuer's id": ("wrong-key", lambda: raw(resigned(made(), OTHER))),
    "self-checked, where an issuer's is wanted": ("wrong-key", lambda: raw(made("self-checked", LEARNER))),
    "from tomorrow": ("not-yet-valid", lambda: raw(resigned(put("validFrom", "2026-03-03T09:30:00Z")))),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_or_damaged_certificate_is_told_apart(name: str) -> None:
    """By its state, with a sentence; and it is never called valid."""
    state, make = FORGED[name]

    verdict = verify(make(), [KEY.public], now=NOW)

    assert verdict.state == state, verdict.said
    assert verdict.exit_code == EXIT_CODES[state] != 0
    assert len(verdict.said) > 20
    assert verdict.said.isprintable()
    assert (verdict.proved != ()) == (
        state == "not-yet-valid" or (state == "wrong-key" and "one's own key" not in name)
    )


def lists() -> dict[str, tuple[State, bytes]]:
    """Revocation lists, most of them bad, and what a good certificate is with each."""
    name = made()["id"]
    good = revoke(None, name, "a mistake", KEY, NOW)
    other = "urn:uuid:00000000-0000-4000-8000-000000000000"
    listed = raw(revoke(None, other, "x", KEY, NOW))
    unsigned = {key: value for key, value in good.items() if key != "proof"}
    return {
        "it stands on the list": ("revoked", raw(good)),
        "it stands on the list as the second": ("revoked", raw(revoke(listed, name, "y", KEY, NOW))),
        "it stands not on the list": ("valid", listed),
        "the list is torn": ("list-unreadable", raw(good)[:-9]),
        "the list is empty": ("list-unreadable", b""),
        "the list is another file": ("list-foreign", raw(made())),
        "the list is of a later version": ("list-unknown-version", raw({**good, "version": 2})),
        "the list lacks its date": ("list-damaged", raw({key: each for key, each in good.items() if key != "updated"})),
        "the list is not signed": ("list-damaged", raw(unsigned)),
        "an entry was taken from the list": ("list-tampered", raw({**good, "revoked": []})),
        "another entry in the list": (
            "list-tampered", raw(put("revoked/0/id", other, copy.deepcopy(good)))),
        "the list is signed by another": ("list-wrong-key", raw(revoke(None, name, "a grudge", LEARNER, NOW))),
        "the list names the issuer, signed by another": (
            "list-wrong-key", raw(signed(unsigned, OTHER, "2026-03-02T09:30:00Z"))),
        "the list is of another issuer": ("list-other-issuer", raw(revoke(None, name, "not mine", OTHER, NOW))),
    }  # fmt: skip


LISTS = lists()


@pytest.mark.parametrize("name", LISTS)
def test_a_certificate_is_looked_up_in_a_list_that_is_good_itself(name: str) -> None:
    """A bad list has a state of its own, and does not make the certificate valid."""
    state, listed = LISTS[name]

    verdict = verify(raw(made()), [KEY.public, OTHER.public], listed, NOW)

    assert verdict.state == state, verdict.said
    assert verdict.fingerprint == KEY.public.fingerprint


def test_every_state_is_met_and_has_an_exit_code_of_its_own() -> None:
    """The tables above leave none out, and nothing else than valid ends with 0."""
    met = {state for state, _ in FORGED.values()} | {state for state, _ in LISTS.values()}

    assert met | {"self-checked"} == set(get_args(State)) == set(EXIT_CODES)
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)
    assert [state for state, code in EXIT_CODES.items() if code == 0] == ["valid"]
    assert len(FORGED) >= 80


def test_an_attested_certificate_is_valid_with_its_issuers_key() -> None:
    """Also beside other keys, in another layout of the JSON, and as its own signer left it."""
    document = made(name="Zoë 李 O'Neil")
    shuffled = json.dumps(dict(reversed(document.items())), separators=(",", ":")).encode()

    verdicts = [verify(each, [OTHER.public, KEY.public], now=NOW) for each in (raw(document), shuffled)]

    assert [verdict.state for verdict in verdicts] == ["valid", "valid"]
    assert verdicts[0].level == "attested"
    assert verdicts[0].name == "Zoë 李 O'Neil"
    assert verdicts[0].result == "87.5 of 100 points, merit"
    assert any("vouches" in each for each in verdicts[0].proved)
    assert any("not revoked" in each for each in verdicts[0].open)


def test_a_self_checked_certificate_says_what_it_does_not_prove() -> None:
    """Right signature, the learner's own key: no result is proved, whether the key is given or not."""
    document = raw(made("self-checked", LEARNER))

    for keys in ([], [LEARNER.public]):
        verdict = verify(document, keys, now=NOW)

        assert verdict.state == "self-checked"
        assert verdict.level == "self-checked"
        assert not any("vouches" in each for each in verdict.proved)
        assert any("result" in each for each in verdict.open)


def test_an_attested_certificate_without_a_key_proves_nothing_about_its_issuer() -> None:
    """Anyone can write the issuer's name, so no name is believed without a key."""
    for document in (made(), forged_by(OTHER)):
        verdict = verify(raw(document), [], now=NOW)

        assert verdict.state == "wrong-key"
        assert "Anyone can make a key" in verdict.said


def test_clocks_may_differ_a_little() -> None:
    """A certificate of five minutes ahead is good; of an hour, not."""
    ahead = [NOW - datetime.timedelta(minutes=minutes) for minutes in (5, 60)]

    assert [verify(raw(made()), [KEY.public], now=now).state for now in ahead] == ["valid", "not-yet-valid"]


@settings(max_examples=300)
@given(st.data())
def test_no_byte_can_be_flipped(data: st.DataObject) -> None:
    """Whatever byte is changed into whatever other: not valid, unless it is read as exactly the same."""
    file = bytearray(raw(made()))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= data.draw(st.integers(1, 255))

    verdict = verify(bytes(file), [KEY.public], now=NOW)

    try:
        same = json.loads(bytes(file).decode("utf-8")) == made()
    except ValueError:
        same = False
    assert (verdict.state == "valid") == same


@settings(max_examples=200)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_make_it_fail(file: bytes, listed: bytes) -> None:
    """Any bytes as a certificate, and as a list, give a verdict."""
    assert verify(file, [KEY.public]).state in EXIT_CODES
    assert verify(raw(made()), [KEY.public], listed, NOW).state.startswith("list-")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, way: str = "") -> list[str]:
    """Every place in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for name, each in items for path in [f"{way}{name}", *paths(each, f"{way}{name}/")]]


@settings(max_examples=300)
@given(st.sampled_from(paths(made())), JSON)
def test_any_value_in_any_place_gives_a_verdict(path: str, value: Any) -> None:
    """A member replaced by whatever JSON has: told apart, never valid, and no other error."""
    before = made()
    document = put(path, value, made())

    verdict = verify(json.dumps(document).encode(), [KEY.public], now=NOW)

    assert (verdict.state == "valid") == (document == before and raw(document) == raw(before))


def test_keys_are_told_by_themselves_not_by_the_name_beside_them() -> None:
    """A trusted key that is known under another name is the same key."""
    renamed = replace(KEY.public, issuer="Renamed")

    assert verify(raw(made()), [renamed], now=NOW).state == "valid"


def test_an_issuer_who_is_trusted_cannot_pass_for_another_who_is() -> None:
    """Its file of the key says another name than the certificate: that is said, and only then."""
    document = resigned(put("issuer/name", "Another Institute"))
    nameless = replace(KEY.public, issuer="")

    mine, other, unknown = (
        verify(raw(each), [OTHER.public, key], now=NOW)
        for each, key in ((made(), KEY.public), (document, KEY.public), (document, nameless))
    )

    assert [each.state for each in (mine, other, unknown)] == ["valid"] * 3
    assert other.open[0] == (
        "that its issuer is Another Institute: the file of the key that you gave says Institute of Parallel Things"
    )
    assert not any("its issuer is" in each for each in mine.open + unknown.open)


def test_a_list_that_was_looked_into_is_not_said_to_be_missing() -> None:
    """Also where the date is what is wrong; of a revoked certificate nothing of the kind is said."""
    early = NOW - datetime.timedelta(days=1)
    listed, other = raw(revoke(None, made()["id"], "a mistake.", KEY, NOW)), "urn:uuid:" + made()["id"][9:-1] + "0"
    good = raw(revoke(None, other if other != made()["id"] else other[:-1] + "1", "x", KEY, NOW))

    not_yet, revoked = (verify(raw(made()), [KEY.public], each, early) for each in (good, listed))

    assert not_yet.state == "not-yet-valid"
    assert any("not on the issuer's revocation list of 2026-03-02" in each for each in not_yet.proved)
    assert not any("revo" in each for each in not_yet.open)
    assert revoked.said == "It was revoked on 2026-03-02: a mistake."
    assert not any("list" in each for each in revoked.proved)


def test_a_name_that_stands_twice_among_very_many_is_found_at_once() -> None:
    """As many as a file can hold: a hostile file must not keep anyone waiting."""
    names = [f'"{number:x}":1' for number in range(23_000)]
    start = time.monotonic()

    verdict = verify(("{" + ",".join([*names, names[-1]]) + "}").encode())

    assert "stands twice" in verdict.said
    assert time.monotonic() - start < 5


def test_a_page_given_in_place_of_the_certificate_is_named() -> None:
    """HTML and PDF; and a byte order mark is called by its name."""
    for page in (b"<!doctype html><p>Certificate", b"%PDF-1.7 ..."):
        assert "the certificate is the JSON file" in verify(page).said
    assert "byte order mark" in verify(b"\xef\xbb\xbf" + raw(made())).said
