"""Keys are kept from others, and what is no key is named."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from course.tests.test_certificate import KEY, made, raw
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from paceline.records.errors import Exit, PacelineError
from paceline_course.certificate import keys
from paceline_course.certificate.keys import (
    PrivateKey,
    config_folder,
    learner_key,
    make_pair,
    new_key,
    read_private,
    read_public,
)
from paceline_course.certificate.verify import verify


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for settings of this test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "paceline"


def test_the_learners_key_is_made_once_and_closed_to_others(config: Path) -> None:
    """Mode 0600 whatever the umask is; the second time it is the same key."""
    before = os.umask(0)
    try:
        first = learner_key()
    finally:
        os.umask(before)

    assert learner_key().public == first.public
    assert [path.name for path in config.iterdir()] == ["learner.key"]
    assert (config / "learner.key").stat().st_mode & 0o777 == 0o600


def test_two_that_begin_at_once_get_the_same_key() -> None:
    """Eight threads, none of which found a key."""
    found: list[bytes] = []
    start = threading.Barrier(8)

    def get() -> None:
        start.wait()
        found.append(learner_key().public.raw)

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_key_that_another_process_made_meanwhile_is_taken(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears after it was looked for: the file stays, and is the key."""

    def quicker() -> PrivateKey:
        monkeypatch.undo()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent))
        made_by_other.append(learner_key())
        return new_key()

    made_by_other: list[PrivateKey] = []
    monkeypatch.setattr(keys, "new_key", quicker)

    assert learner_key().public == made_by_other[0].public


def test_without_a_folder_of_settings_the_home_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative XDG_CONFIG_HOME is none, as the XDG rules want it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)

        assert config_folder() == tmp_path / ".config" / "paceline"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o660, 0o666, 0o777])
def test_a_private_key_that_others_can_read_or_change_is_refused(mode: int) -> None:
    """With the command that mends it; then it is taken."""
    learner_key()
    path = config_folder() / "learner.key"
    path.chmod(mode)

    with pytest.raises(PacelineError, match="others can read") as refused:
        learner_key()

    assert f"{mode:04o}" in refused.value.why
    assert f"chmod 600 {path}" in refused.value.hint
    path.chmod(0o600)
    assert learner_key()


def test_a_pair_is_made_for_an_issuer_and_never_overwritten(tmp_path: Path) -> None:
    """The private file is closed, the public one says whose it is, and the two belong together."""
    private, public = make_pair("Institute of Parallel Things", tmp_path / "keys")
    before = private.read_bytes()

    assert (private.name, public.name) == ("Institute-of-Parallel-Things.key", "Institute-of-Parallel-Things.pub")
    assert private.stat().st_mode & 0o777 == 0o600
    assert read_private(private).public == read_public(str(public))
    assert read_public(str(public)).issuer == "Institute of Parallel Things"
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(PacelineError, match="exists"):
        make_pair("Institute of Parallel Things", tmp_path / "keys")
    public.unlink()
    with pytest.raises(PacelineError, match="exists"):
        make_pair("Institute of Parallel Things", tmp_path / "keys")
    assert private.read_bytes() == before
    assert not public.exists()


def test_an_issuer_may_be_called_by_the_words_of_a_private_key(tmp_path: Path) -> None:
    """The kind of a file is told by its PEM lines, not by the name above them."""
    private, public = make_pair("PRIVATE KEY Ltd", tmp_path)

    assert read_public(str(public)) == read_private(private).public


def test_a_fingerprint_is_the_beginning_of_the_keys_digest() -> None:
    """Sixteen digits in groups of four."""
    digits = hashlib.sha256(KEY.public.raw).hexdigest()

    assert KEY.public.fingerprint == f"{digits[:4]} {digits[4:8]} {digits[8:12]} {digits[12:16]}"


def test_a_public_key_may_be_given_as_it_stands_in_a_certificate() -> None:
    """As did:key; a wrong one is named."""
    assert read_public(KEY.public.did) == keys.PublicKey(KEY.public.raw)
    for wrong in (KEY.public.did[:-1], "did:web:example.org", "did:key:z0", "did:key:z" + "1" * 300):
        with pytest.raises(PacelineError, match="no key"):
            read_public(wrong)


def encrypted(path: Path) -> None:
    """A key with a password."""
    path.write_bytes(KEY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def of_another_kind(path: Path) -> None:
    """A key of another kind of signature."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def torn(path: Path) -> None:
    """Half a key."""
    whole = KEY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(whole[:60] + b"\n-----END PRIVATE KEY-----\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "cannot be read"),
        (lambda path: path.mkdir(), "no file"),
        (lambda path: path.write_text("hello"), "no private key"),
        (lambda path: path.write_bytes(b""), "no private key"),
        (lambda path: path.write_text(keys.public_text(KEY.public)), "no private key"),
        (torn, "no private key"),
        (encrypted, "encrypted"),
        (of_another_kind, "no Ed25519 key"),
    ],
)
def test_what_is_no_private_key_is_named(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    """With its file."""
    path = tmp_path / "some.key"
    make(path)
    if path.is_file():
        path.chmod(0o600)

    with pytest.raises(PacelineError, match=said) as refused:
        read_private(path)

    assert str(path) in refused.value.what


@pytest.mark.parametrize("kind", ["missing", "private", "text", "of another kind"])
def test_what_is_no_public_key_is_named(kind: str, tmp_path: Path) -> None:
    """A private key above all, which must not travel."""
    path = tmp_path / "some.pub"
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    content = {
        "private": KEY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "text": b"hello",
        "of another kind": other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    }
    if kind in content:
        path.write_bytes(content[kind])

    with pytest.raises(PacelineError, match=r"some\.pub") as refused:
        read_public(str(path))

    assert ("is a private key" in refused.value.what) == (kind == "private")


@pytest.mark.parametrize("folder", ["/proc", "/" + "a" * 300])
def test_where_no_key_can_be_written_it_is_said(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exit code for what cannot be written, and no file left; also where not even looking is possible."""
    monkeypatch.setenv("XDG_CONFIG_HOME", folder)

    with pytest.raises(PacelineError) as refused:
        learner_key()

    assert refused.value.exit_code == Exit.CANNOT_WRITE
    assert "XDG_CONFIG_HOME" in refused.value.hint


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever needs it."""
    monkeypatch.setitem(sys.modules, "cryptography", None)

    for call in (new_key, learner_key, lambda: verify(raw(made()), [KEY.public])):
        with pytest.raises(PacelineError) as refused:
            call()

        assert "pip install ./course" in refused.value.hint
