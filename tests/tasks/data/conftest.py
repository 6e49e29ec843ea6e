"""A tiny data set, a mirror on this machine that serves it, and a user without any data set."""

import gzip
import hashlib
import http.server
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from paceline.tasks.data.catalog import CATALOG, DataFile, DataSet


def idx_bytes(array: np.ndarray) -> bytes:
    """`array` (uint8) in IDX format, written from the format's description."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_content(train: int = 40, evaluation: int = 9) -> dict[str, bytes]:
    """Files like Fashion-MNIST's, with random images and few samples."""
    random = np.random.default_rng(7)

    def images(count: int) -> bytes:
        return idx_bytes(random.integers(0, 256, (count, 28, 28), dtype=np.uint8))

    def labels(count: int) -> bytes:
        return idx_bytes(random.integers(0, 10, (count,), dtype=np.uint8))

    return {
        "train-images-idx3-ubyte": images(train),
        "train-labels-idx1-ubyte": labels(train),
        "t10k-images-idx3-ubyte": images(evaluation),
        "t10k-labels-idx1-ubyte": labels(evaluation),
    }


@dataclass
class Tiny:
    """The data set `tiny` and its true content."""

    content: dict[str, bytes]
    dataset: DataSet

    def write(self, root: Path, **changed: bytes | None) -> Path:
        """Put it below `root`, some files changed (None: left out; `_` in the names stands for `-`)."""
        raw = self.dataset.raw(root)
        raw.mkdir(parents=True, exist_ok=True)
        other = {name.replace("_", "-"): value for name, value in changed.items()}
        for name, true in self.content.items():
            value = other.get(name, true)
            if value is not None:
                (raw / name).write_bytes(value)
        return root

    def is_whole(self, root: Path) -> bool:
        """Whether exactly the true files stand below `root`, and nothing else in the set's folder."""
        found = {
            str(path.relative_to(root)): path.read_bytes()
            for path in (root / self.dataset.folder).rglob("*")
            if path.is_file()
        }
        return found == {f"{self.dataset.folder}/raw/{name}": content for name, content in self.content.items()}

    def use(self, **changes: object) -> DataSet:
        """Change the catalogue's entry."""
        self.dataset = replace(self.dataset, **changes)
        CATALOG["tiny"] = self.dataset
        return self.dataset


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A catalogue with one more data set, `tiny`, that can be fetched from nowhere."""
    content = tiny_content()
    files = tuple(
        DataFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in content.items()
    )
    dataset = DataSet(
        name="tiny", title="Tiny", folder="FashionMNIST", files=files, samples={"train": 40, "eval": 9}, licence="none"
    )
    monkeypatch.setitem(CATALOG, "tiny", dataset)
    return Tiny(content, dataset)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty cache who works in an empty directory, and no proxy between this machine and itself."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def cache(home: Path) -> Path:
    """The root of that user's cache."""
    return home / ".cache" / "paceline" / "data"


@dataclass
class Mirror:
    """A web server; `files` are its answers, `requests` what it was asked for."""

    address: str
    files: dict[str, bytes]
    requests: list[str] = field(default_factory=list)
    before_half: Callable[[], None] = lambda: None
    """Called after the first half of an answer was sent."""
    dribble_s: float = 0.0
    """If not 0: the second half is sent byte by byte, with this pause after each."""
    lie_about_length: int = 0
    """Bytes that are announced and never sent."""


@pytest.fixture
def mirror(tiny: Tiny) -> Iterator[Mirror]:
    """A mirror of `tiny`, named in its catalogue entry."""
    served = Mirror("", {f"/{name}.gz": gzip.compress(content) for name, content in tiny.content.items()})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.requests.append(self.path)
            body = served.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + served.lie_about_length))
            self.end_headers()
            half = len(body) // 2
            try:
                self.wfile.write(body[:half])
                self.wfile.flush()
                served.before_half()
                for piece in (
                    [body[half:]] if not served.dribble_s else (body[i : i + 1] for i in range(half, len(body)))
                ):
                    self.wfile.write(piece)
                    time.sleep(served.dribble_s)
            except OSError:
                pass  # the client was killed, which is what some tests do

        def log_message(self, *arguments):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.address = f"http://127.0.0.1:{server.server_port}/"
    tiny.use(mirrors=(served.address,))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def script(tiny: Tiny) -> Callable[[str], str]:
    """Makes the text of a program that knows `tiny` as it is now, and then runs the given lines."""

    def make(body: str) -> str:
        return (
            "import os, sys, time\nfrom pathlib import Path\n"
            "from paceline.records.errors import PacelineError\n"
            "from paceline.tasks.data.catalog import CATALOG, DataFile, DataSet\n"
            "from paceline.tasks.data.obtain import obtain\n"
            f"CATALOG['tiny'] = {tiny.dataset!r}\n{body}\n"
        )

    return make
