"""Ed25519 keys: a learner's own, made when it is first needed, and instructors', made by command.

A private key is a PEM file (PKCS 8, not encrypted) that only its owner can read. A public key is a PEM file that may
be given to anyone. In front of both stands the issuer's name, which readers of PEM skip.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import make_dirs, write_atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LEARNER = "learner.key"
_LARGEST = 64 * 1024
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_MULTICODEC = bytes([0xED, 0x01])
"""Of an Ed25519 public key, in front of its 32 bytes (multicodec's table)."""
_DID = "did:key:z"
_PRIVATE = b"PRIVATE KEY-----"
"""At the end of a line of PEM; an issuer may be called by its words."""
_ISSUER = re.compile(r"^# issuer: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class PublicKey:
    """What signatures are checked with."""

    raw: bytes
    """32 bytes."""
    issuer: str = ""
    """As its file says; known to nobody else."""

    @property
    def fingerprint(self) -> str:
        """To be compared by eye: the first 16 hexadecimal digits of its sha256, in groups of four."""
        return grouped(hashlib.sha256(self.raw).hexdigest()[:16])

    @property
    def did(self) -> str:
        """As a name that contains the key itself (the did:key method)."""
        return _DID + base58(_MULTICODEC + self.raw)

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether this key's owner signed exactly this message."""
        _need_cryptography()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """What is signed with."""

    key: Ed25519PrivateKey
    issuer: str = ""

    @property
    def public(self) -> PublicKey:
        """Its other half."""
        return PublicKey(self.key.public_key().public_bytes_raw(), self.issuer)

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self.key.sign(message)


def grouped(digits: str) -> str:
    """In groups of four."""
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def base58(raw: bytes) -> str:
    """In Bitcoin's alphabet of base 58, as multibase's `z` has it."""
    number, digits = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _ALPHABET[digit] + digits
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + digits


def from_base58(text: str) -> bytes:
    """The other way.

    Raises:
        ValueError: a sign that is not in the alphabet, or more than 200 of them.
    """
    if len(text) > 200:
        raise ValueError("too long")
    number = 0
    for sign in text:
        number = number * 58 + _ALPHABET.index(sign)
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def from_did(did: str) -> PublicKey:
    """The key that a did:key consists of.

    Raises:
        ValueError: it is none of Ed25519.
    """
    if not did.startswith(_DID):
        raise ValueError("it does not begin with did:key:z")
    raw = from_base58(did.removeprefix(_DID))
    if len(raw) != 34 or not raw.startswith(_MULTICODEC):
        raise ValueError("it holds no Ed25519 key")
    return PublicKey(raw[2:])


def config_folder() -> Path:
    """The user's own folder for settings: $XDG_CONFIG_HOME/paceline, or ~/.config/paceline."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    if named and Path(named).is_absolute():  # others are to be ignored, as the XDG rules say
        return Path(named) / "paceline"
    try:
        return Path.home() / ".config" / "paceline"
    except RuntimeError as error:
        raise PacelineError(
            "there is no folder for your key", why=str(error), hint="set XDG_CONFIG_HOME to a folder of yours"
        ) from error


def learner_key() -> PrivateKey:
    """The learner's own key of this machine; made when there is none yet.

    Raises:
        PacelineError: it cannot be read or made, or others can read it.
    """
    path = config_folder() / LEARNER
    if not os.path.lexists(path):  # not `exists`, which fails in a folder that may not be entered
        made = new_key()
        with contextlib.suppress(FileExistsError):  # another process was quicker: then that one's is the key
            _write_private(path, made)
    return read_private(path)


def make_pair(issuer: str, folder: Path) -> tuple[Path, Path]:
    """Make an instructor's key: the private file and the public one. Nothing is overwritten.

    Raises:
        PacelineError: a file of that name exists, or cannot be written.
    """
    stem = re.sub(r"[^\w.-]+", "-", issuer).strip("-.")[:40] or "issuer"
    private, public = folder / f"{stem}.key", folder / f"{stem}.pub"
    for path in (private, public):
        if os.path.lexists(path):
            raise PacelineError(f"{path} exists", hint="another --out, or another name: a key is never overwritten")
    key = new_key(issuer)
    try:
        _write_private(private, key)
    except FileExistsError:
        raise PacelineError(f"{private} exists", hint="another --out: a key is never overwritten") from None
    write_atomic(public, public_text(key.public).encode())
    return private, public


def new_key(issuer: str = "") -> PrivateKey:
    """Drawn from the system's randomness."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate(), issuer)


def public_text(key: PublicKey) -> str:
    """What stands in a file of a public key."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = Ed25519PublicKey.from_public_bytes(key.raw).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{_head(key)}# fingerprint: {key.fingerprint}\n# {key.did}\n{pem.decode()}"


def read_private(path: Path) -> PrivateKey:
    """Read a private key that only its owner can read.

    Raises:
        PacelineError: missing, no such key, encrypted, or open to others.
    """
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text, mode = _read(path)
    if _PRIVATE not in text:
        raise PacelineError(f"{path} is no private key", hint="the file that ends with .key")
    if mode & 0o077:
        raise PacelineError(
            f"others can read or change the private key {path}",
            why=f"its mode is {stat.S_IMODE(mode):04o}, and it has to be 0600",
            hint=f"chmod 600 {path}; if others may have read it, make a new key and revoke what it signed",
        )
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:
        raise PacelineError(
            f"{path} is encrypted", hint="openssl pkey -in IT -out ANOTHER takes the password off"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PacelineError(f"{path} is no private key", why="its PEM text cannot be read") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise PacelineError(f"{path} is no Ed25519 key", hint="paceline learn certificate key NAME makes one")
    return PrivateKey(key, _issuer(text))


def read_public(named: str) -> PublicKey:
    """A public key: a PEM file, or a did:key as it stands in a certificate.

    Raises:
        PacelineError: missing, or no such key.
    """
    if named.startswith("did:"):
        try:
            return from_did(named)
        except ValueError as error:
            raise PacelineError(f"{named[:80]} is no key", why=str(error)) from None
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text, _ = _read(Path(named))
    if _PRIVATE in text:
        raise PacelineError(
            f"{named} is a private key", hint="the public one ends with .pub; give the private to nobody"
        )
    try:
        key = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PacelineError(f"{named} is no public key", why="its PEM text cannot be read") from error
    if not isinstance(key, Ed25519PublicKey):
        raise PacelineError(f"{named} is no Ed25519 key")
    return PublicKey(key.public_bytes_raw(), _issuer(text))


def _issuer(text: bytes) -> str:
    found = _ISSUER.search(text.decode("utf-8", "replace"))
    return found[1].strip() if found else ""


def _head(key: PublicKey) -> str:
    return f"# issuer: {key.issuer}\n" if key.issuer else ""


def _read(path: Path) -> tuple[bytes, int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(handle).st_mode  # of the very file that is read, not of what bears its name later
            if not stat.S_ISREG(mode):
                raise PacelineError(f"{path} is no file")
            return os.read(handle, _LARGEST), mode
        finally:
            os.close(handle)
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _write_private(path: Path, key: PrivateKey) -> None:
    """Whole or not at all, readable by nobody else at any moment.

    Raises:
        FileExistsError: there is a file of that name.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    elsewhere = "another folder: --out, or XDG_CONFIG_HOME for your own key"
    try:
        make_dirs(path.parent)
    except PacelineError as error:  # its own hint is about the folder of a training
        raise PacelineError(error.what, why=error.why, hint=elsewhere, exit_code=error.exit_code) from error
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(key.public).encode() + pem)
                file.flush()
                os.fsync(file.fileno())
            # A link fails where the name is taken; a rename would replace what stands there.
            os.link(temporary, path)
        finally:
            temporary.unlink()
    except FileExistsError:
        raise
    except OSError as error:
        raise PacelineError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            hint=elsewhere,
            exit_code=Exit.CANNOT_WRITE,
        ) from error


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise PacelineError("certificates need the library cryptography", hint="pip install ./course") from error
