"""Debian's package as the last place: fetched without installing, and never waited for without end."""

import gzip
import os
import time

import pytest

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.data import apt
from paceline.tasks.data.obtain import obtain


@pytest.fixture
def tools(tiny, tmp_path, monkeypatch):
    """Stand-ins for apt-get and dpkg-deb, written by each test; `calls` collects what they were asked to do."""
    package = tmp_path / "package" / "usr" / "share" / "tiny"
    package.mkdir(parents=True)
    for name, content in tiny.content.items():
        (package / f"{name}.gz").write_bytes(gzip.compress(content))
    tiny.use(debian_package="dataset-tiny", debian_dir="/usr/share/tiny")

    class Tools:
        directory = tmp_path / "bin"
        calls = tmp_path / "calls"

        def write(self, name, body):
            self.directory.mkdir(exist_ok=True)
            tool = self.directory / name
            tool.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{body}\n')
            tool.chmod(0o755)

        def asked(self):
            return [
                line.split()[0] + " " + line.split("Retries=1 ")[-1] for line in self.calls.read_text().splitlines()
            ]

    tools = Tools()
    tools.write("dpkg-deb", f'mkdir -p "$3" && cp -r {tmp_path}/package/usr "$3"')
    monkeypatch.setenv("PATH", str(tools.directory), prepend=os.pathsep)
    return tools


def test_the_package_is_fetched_and_unpacked_aside(tiny, tools, cache):
    """apt-get downloads, dpkg-deb unpacks into a temporary directory, the files land in the cache, nothing else."""
    tools.write("apt-get", "echo content > dataset-tiny_1_all.deb")

    obtained = obtain("tiny")

    assert "fetched with apt" in obtained.source
    assert tools.asked()[0] == "apt-get download dataset-tiny"
    assert tiny.is_whole(cache)


def test_root_gets_the_package_lists_once_when_they_are_empty(tiny, tools, cache, monkeypatch):
    """download fails, update, download again: exactly that, as root."""
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    tools.write(
        "apt-get",
        f"case $* in *update*) touch {cache.parent}.lists;; *) "
        f'[ -e {cache.parent}.lists ] || {{ echo "E: Unable to locate package dataset-tiny"; exit 100; }}\n'
        "echo content > dataset-tiny_1_all.deb;; esac",
    )

    obtain("tiny")

    assert [line.split()[1] for line in tools.asked()[:3]] == ["download", "update", "download"]
    assert tiny.is_whole(cache)


def test_root_does_not_update_again_and_again(tiny, tools, monkeypatch):
    """If the package stays unknown, that is the reason; one update is enough."""
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    tools.write(
        "apt-get", 'case $* in *update*) ;; *) echo "E: Unable to locate package dataset-tiny"; exit 100;; esac'
    )

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert "Unable to locate package dataset-tiny" in caught.value.why
    assert [line.split()[1] for line in tools.asked()] == ["download", "update", "download"]


def test_others_are_told_that_the_package_lists_are_empty(tiny, tools, monkeypatch):
    """Without root nothing is updated; the reason says what would help."""
    monkeypatch.setattr(apt.os, "geteuid", lambda: 1000)
    tools.write("apt-get", 'echo "E: Unable to locate package dataset-tiny"; exit 100')

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert "sudo apt-get update" in caught.value.why
    assert len(tools.asked()) == 1


def test_apt_that_hangs_is_ended_with_its_children(tiny, tools, cache, tmp_path, monkeypatch):
    """After the limit the tool and what it started are gone, and the reason says so."""
    monkeypatch.setattr(apt, "DOWNLOAD_LIMIT_S", 0.5)
    tools.write("apt-get", f"sleep 60 & echo $! > {tmp_path}/child; wait")

    start = time.monotonic()
    with pytest.raises(PacelineError) as caught:
        obtain("tiny")
    took = time.monotonic() - start

    assert "apt-get took longer than" in caught.value.why
    assert took < 10
    assert _is_gone(int((tmp_path / "child").read_text()))
    assert not cache.exists()


def _is_gone(pid, patience_s=5.0):
    """Whether a process has ended (a zombie that nobody has collected counts as ended)."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_apt_on_a_full_disk_is_a_full_disk(tiny, tools, cache):
    """What apt says about the disk becomes exit code 4, as with any other write."""
    tools.write("apt-get", 'echo "E: Write error - write (28: No space left on device)"; exit 100')

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert caught.value.why == "No space left on device"
    assert not cache.exists()


def test_a_broken_package_is_named(tiny, tools):
    """The reason is dpkg-deb's own last word."""
    tools.write("apt-get", "echo content > dataset-tiny_1_all.deb")
    tools.write("dpkg-deb", 'echo "dpkg-deb: error: not a Debian format archive"; exit 2')

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert "not a Debian format archive" in caught.value.why


def test_a_package_without_the_files_is_named(tiny, tools, tmp_path):
    """A later package that moved its files does not pass in silence."""
    tools.write("apt-get", "echo content > dataset-tiny_1_all.deb")
    (tmp_path / "package" / "usr" / "share" / "tiny" / "t10k-labels-idx1-ubyte.gz").unlink()

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert "t10k-labels-idx1-ubyte is missing" in caught.value.why
