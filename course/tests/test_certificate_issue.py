"""Certificates as they are made: of which grades, for which names, with which code, and how they are revoked."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from course.tests.test_certificate import KEY, NOW, OTHER, TITLE, grade, made, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import Line
from paceline_course.certificate.canonical import LARGEST
from paceline_course.certificate.credential import Holder, issue
from paceline_course.certificate.proof import signed
from paceline_course.certificate.revocation import revoke
from paceline_course.certificate.shape import decimal, facts
from paceline_course.certificate.states import State
from paceline_course.certificate.verify import verify, verify_code


@settings(max_examples=100)
@given(st.data())
def test_no_sign_of_a_code_can_be_changed(data: st.DataObject) -> None:
    """The text of the QR code, with one sign replaced, is not valid."""
    code = made()["paceline"]["code"]
    at = data.draw(st.integers(0, len(code) - 1))
    sign = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./ ").filter(lambda each: each != code[at]))

    verdict = verify_code(code[:at] + sign + code[at + 1 :], [KEY.public])

    if not (at in (0, len(code) - 1) and sign == " "):
        assert verdict.state not in ("valid", "self-checked")
    assert verify_code(code, [KEY.public]).state == "valid"


def spelled_otherwise(code: str) -> str:
    """With a bit set in its last sign that no byte of the signature uses: base 32 reads it as the same."""
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return code[:-1] + signs[signs.index(code[-1]) + 1]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("unreadable", ""),
        ("unreadable", "PACELINE1/" + "A" * 1000),
        ("foreign", "https://example.org"),
        ("unknown-version", "PACELINE2/A/B"),
        ("damaged", made()["paceline"]["code"][:-1]),
        ("damaged", made()["paceline"]["code"].lower().replace("paceline", "PACELINE")),
        ("damaged", spelled_otherwise(made()["paceline"]["code"])),
        ("wrong-key", made("attested", OTHER)["paceline"]["code"]),
        ("tampered", made()["paceline"]["code"].replace("/87.5/", "/97.5/")),
        ("tampered", made()["paceline"]["code"].replace("/M/", "/P/")),
        ("tampered", made("self-checked")["paceline"]["code"].replace("/S/", "/A/")),
        ("self-checked", made("self-checked")["paceline"]["code"]),
        ("valid", f" {made()['paceline']['code']}\n"),
    ],
)
def test_a_code_has_the_same_states(state: State, text: str) -> None:
    """And a code is only as good as a key that was given."""
    assert verify_code(text, [KEY.public]).state == state


def test_a_code_belongs_to_one_certificate() -> None:
    """Its digest is that of the certificate, which changes with any member, the name for one."""
    document = made()
    ours = {name: value for name, value in document["paceline"].items() if name != "code"}
    bare = {name: value for name, value in document.items() if name != "proof"} | {"paceline": ours}
    digest = hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    verdict = verify_code(document["paceline"]["code"], [KEY.public])

    assert verdict.id == document["id"]
    assert digest.hexdigest() in verdict.proved[0]
    assert not any("the result" in each for each in verdict.open)
    own = verify_code(made("self-checked")["paceline"]["code"], [KEY.public])
    assert "the result: it was graded on the learner's own computer" in own.open[0]
    assert facts(made(name="Eve")).digest != digest.hexdigest()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "practice"}, "practice"),
        ({"complete": False}, "not every line"),
        ({"pass_points": 90}, "87.5 points, and 90 are needed"),
        ({"lines": [*grade().lines, Line(id="A.stop", title="", most=0, gate=True, state="failed")]}, "A.stop"),
        ({"lines": [*grade().lines, Line(id="A.oracle", title="", most=0)]}, "A.oracle"),
        ({"lines": [*grade().lines, Line(id="A.big", title="", most=1, points=2)]}, "A.big"),
        ({"lines": [*grade().lines, Line(id="E.extra", title="", most=1)]}, "E.extra"),
        ({"lines": [], "pass_points": 0}, "no lines"),
        ({"seconds": float("nan")}, "nan"),
        ({"submission": ""}, "submission"),
        ({"machine": {"name": "\ud800"}}, "half a character"),
        ({"gaps": ["x" * 300_000]}, "more than 262144 are not read"),
    ],
)
def test_only_a_final_complete_grade_that_passed_is_certified(changes: dict[str, Any], said: str) -> None:
    """Otherwise it is said what it lacks."""
    with pytest.raises(PacelineError) as refused:
        issue(grade(**changes), Holder("Ada", "attested", "Institute", TITLE), KEY, NOW)

    assert said in str(refused.value)


def test_all_that_a_grade_lacks_is_said_at_once() -> None:
    """Not one after the other."""
    with pytest.raises(PacelineError) as refused:
        issue(grade(kind="practice", complete=False, pass_points=99), Holder("", "attested", "I", TITLE), KEY, NOW)

    assert all(word in refused.value.why for word in ("practice", "not every line", "99 are needed"))


@pytest.mark.parametrize("name", ["x" * 101, "Ada\u202eecalevoL", "Ada\x07", "Ada\ue000", "Ada\u200b", "\u2066Ada"])
def test_a_name_that_cannot_be_seen_as_it_is_stands_on_no_certificate(name: str) -> None:
    """Too long, with a turned direction, or with signs that are none."""
    with pytest.raises(PacelineError, match="name"):
        issue(grade(), Holder(name, "attested", "Institute", TITLE), KEY, NOW)


def test_a_certificate_holds_the_grade() -> None:
    """Points to the tenth, large seeds to the last digit, and no name where there is none."""
    ours = made()["paceline"]
    nameless = made(name="")

    assert {part["letter"]: float(part["points"]) for part in ours["parts"]} == {"A": 30, "B": 22.5, "C": 20, "D": 15}
    assert [(line["id"], float(line["points"]), line["state"]) for line in ours["lines"]] == [
        (line.id, line.points, line.state) for line in grade().lines
    ]
    assert ours["seeds"] == {"data": "4611686018427387905"}
    assert (ours["target"], ours["seconds"], ours["gaps"]) == ("0.86", "812.4", ["the network"])
    assert "name" not in nameless["credentialSubject"]
    assert verify(raw(nameless), [KEY.public], now=NOW).state == "valid"
    assert "not a complete Open Badge" in ours["note"]


@pytest.mark.parametrize("name", ["علی\u200cرضا", "Zoë 李 O'Neil", "Ada\u00a0Lovelace\n"])
def test_names_of_all_scripts_stand_on_a_certificate(name: str) -> None:
    """Also those that need a joiner; white space of any kind is one space."""
    document = issue(grade(), Holder(name, "attested", "Institute", TITLE), KEY, NOW)

    assert document["credentialSubject"]["name"] == " ".join(name.split())
    assert verify(raw(document), [KEY.public], now=NOW).state == "valid"


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("35f14f0a-99b9-577c-8c52-696ddeb8a73e", "x", "no certificate's id"),
        ("urn:uuid:35f14f0a-99b9-577c-8c52-696ddeb8a73e\n", "x", "no certificate's id"),
        ("urn:uuid:35f14f0a-99b9-577c-8c52-696ddeb8a73e", " ", "--reason"),
        ("urn:uuid:35f14f0a-99b9-577c-8c52-696ddeb8a73e", "x" * 101, "the reason has 101 signs"),
    ],
)
def test_what_cannot_be_revoked_is_said_by_its_option(name: str, reason: str, said: str) -> None:
    """Not by a pattern."""
    with pytest.raises(PacelineError) as refused:
        revoke(None, name, reason, KEY, NOW)

    assert said in str(refused.value)


def test_a_list_that_nobody_could_read_is_not_written() -> None:
    """Larger than is read: refused, with what to do; it stays what it was."""
    entry = {"id": made()["id"], "reason": "r" * 100, "date": "2026-03-02T09:30:00Z"}
    listed = {name: each for name, each in revoke(None, made()["id"], "x", KEY, NOW).items() if name != "proof"}
    full = signed({**listed, "revoked": [entry] * 1210}, KEY, "2026-03-02T09:30:00Z")
    compact = json.dumps(full, separators=(",", ":")).encode()
    assert len(compact) < LARGEST

    with pytest.raises(PacelineError, match="the list is full"):
        revoke(compact, made(name="Eve")["id"], "one more", KEY, NOW)


def test_a_list_grows_and_is_left_alone_by_others() -> None:
    """A second entry is added; the same again, another key, a damaged list and a bad id are refused."""
    first, second = made()["id"], made(name="Eve")["id"]
    listed = raw(revoke(None, first, "one", KEY, NOW))

    both = revoke(listed, second, "two", KEY, NOW)

    assert [entry["id"] for entry in both["revoked"]] == [first, second]
    for refused in (
        lambda: revoke(listed, first, "again", KEY, NOW),
        lambda: revoke(listed, second, "mine", OTHER, NOW),
        lambda: revoke(listed[:-5], second, "torn", KEY, NOW),
        lambda: revoke(None, "urn:uuid:7", "no id", KEY, NOW),
        lambda: revoke(None, first, " ", KEY, NOW),
    ):
        with pytest.raises(PacelineError):
            refused()


@given(st.floats(0, 1e6) | st.integers(0, 10_000).map(lambda tenths: tenths / 10))
def test_points_survive_being_text(points: float) -> None:
    """What is read is the same number, and no exponent is written."""
    text = decimal(points)

    assert float(text) == points
    assert set(text) <= set("0123456789.")
