"""Where a data set is found, in which order, and what happens to damaged copies."""

import fcntl
import gzip
import time

import pytest
from torchvision import datasets

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.data import fetch_lock
from paceline.tasks.data.obtain import cache_root, obtain, whereabouts


def test_what_the_user_named_comes_first(tiny, cache, tmp_path):
    """With copies everywhere, the one in --data-dir is used."""
    named = tiny.write(tmp_path / "named")
    tiny.write(tmp_path / "work" / "data")
    tiny.write(cache)

    obtained = obtain("tiny", named)

    assert obtained.root == named
    assert "--data-dir" in obtained.source


def test_the_working_directory_comes_before_the_cache(tiny, cache, tmp_path):
    """torchvision's layout under ./data wins over the cache, and is used where it lies."""
    local = tiny.write(tmp_path / "work" / "data")
    tiny.write(cache)

    obtained = obtain("tiny")

    assert obtained.root == local
    assert "./data" in obtained.source


def test_the_cache_comes_before_everything_that_must_be_fetched(tiny, mirror, cache):
    """A set in the cache costs no request."""
    tiny.write(cache)

    obtained = obtain("tiny")

    assert obtained.root == cache
    assert mirror.requests == []


def test_the_installed_package_comes_before_the_network(tiny, mirror, cache, tmp_path):
    """Files that Debian's package installed are decompressed into the cache, without a request."""
    installed = tmp_path / "usr-share"
    installed.mkdir()
    for name, content in tiny.content.items():
        (installed / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1))
    tiny.use(debian_package="dataset-tiny", debian_dir=str(installed))

    obtained = obtain("tiny")

    assert obtained.root == cache
    assert str(installed) in obtained.source
    assert tiny.is_whole(cache)
    assert mirror.requests == []


def test_the_mirror_fills_the_cache_and_is_asked_only_once(tiny, mirror, cache):
    """The first call downloads each file once; the second finds them."""
    first = obtain("tiny")
    second = obtain("tiny")

    assert first.source == mirror.address
    assert "cache" in second.source
    assert sorted(mirror.requests) == sorted(mirror.files)
    assert tiny.is_whole(cache)


def test_a_second_mirror_is_asked_when_the_first_has_nothing(tiny, mirror):
    """The reason of the first is kept as a note."""
    tiny.use(mirrors=(f"{mirror.address}nothing/", mirror.address))

    obtained = obtain("tiny")

    assert obtained.source == mirror.address
    assert any("404" in note for note in obtained.notes)


def test_a_mirror_may_be_a_directory_of_this_machine(tiny, cache, tmp_path):
    """file:// addresses work like others."""
    for name, content in tiny.content.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    tiny.use(mirrors=(f"file://{tmp_path}",))

    obtain("tiny")

    assert tiny.is_whole(cache)


def test_the_cache_follows_the_xdg_standard(home, tmp_path, monkeypatch):
    """XDG_CACHE_HOME moves it; a relative value is ignored, as the standard wants."""
    default = cache_root()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    moved = cache_root()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    ignored = cache_root()

    assert default == home / ".cache" / "paceline" / "data"
    assert moved == tmp_path / "elsewhere" / "paceline" / "data"
    assert ignored == default


def test_an_unknown_name_lists_the_known_ones(tiny):
    """The message names every data set that there is."""
    with pytest.raises(PacelineError) as caught:
        obtain("fasion-mnist")

    assert "'fasion-mnist'" in caught.value.what
    assert "fashion-mnist, tiny" in caught.value.hint
    assert caught.value.exit_code == Exit.USAGE


def test_a_missing_data_dir_is_filled(tiny, mirror, tmp_path, cache):
    """The set is put where the user wants it, and only there."""
    obtained = obtain("tiny", tmp_path / "new" / "place")

    assert obtained.root == tmp_path / "new" / "place"
    assert obtained.source == mirror.address
    assert tiny.is_whole(tmp_path / "new" / "place")
    assert not cache.exists()


def test_a_data_dir_is_filled_from_a_copy_on_this_machine_first(tiny, mirror, tmp_path, cache):
    """A copy in the cache saves the download."""
    tiny.write(cache)

    obtained = obtain("tiny", tmp_path / "new")

    assert "your cache" in obtained.source
    assert tiny.is_whole(tmp_path / "new")
    assert mirror.requests == []


def test_files_that_are_missing_from_a_data_dir_are_added(tiny, mirror, tmp_path):
    """What is there and right stays the same file; only the missing one is downloaded."""
    named = tiny.write(tmp_path / "named", t10k_labels_idx1_ubyte=None)
    kept = tiny.dataset.raw(named) / "train-images-idx3-ubyte"
    before = kept.stat().st_ino

    obtain("tiny", named)

    assert mirror.requests == ["/t10k-labels-idx1-ubyte.gz"]
    assert kept.stat().st_ino == before
    assert tiny.is_whole(named)


def test_progress_ends_at_the_exact_size(tiny, mirror):
    """Bytes only grow, up to the size of the decompressed set."""
    told = []

    obtain("tiny", on_progress=told.append)

    counted = [progress.done_bytes for progress in told if progress.total_bytes]
    assert counted == sorted(counted)
    assert counted[-1] == tiny.dataset.size_bytes == sum(len(content) for content in tiny.content.values())


def test_whereabouts_names_the_place_and_fetches_nothing(tiny, mirror, cache):
    """Before: not here. After: the cache. Damaged: not here, and a note says why."""
    before = whereabouts("tiny")
    tiny.write(cache)
    found = whereabouts("tiny")
    tiny.write(cache, t10k_labels_idx1_ubyte=b"bad")
    damaged = whereabouts("tiny")

    assert before.place is None
    assert before.notes == []
    assert "your cache" in found.place
    assert damaged.place is None
    assert "t10k-labels-idx1-ubyte" in damaged.notes[0]
    assert mirror.requests == []


def test_torchvision_reads_what_was_fetched(tiny, mirror, tmp_path):
    """torchvision.datasets.FashionMNIST(root, download=False) finds the files and counts the same samples."""
    root = obtain("tiny", tmp_path / "root").root

    train = datasets.FashionMNIST(root, train=True, download=False)
    evaluation = datasets.FashionMNIST(root, train=False, download=False)

    assert (len(train), len(evaluation)) == (40, 9)
    assert train.data.numpy().tobytes() == tiny.content["train-images-idx3-ubyte"][16:]
    assert evaluation.targets.tolist() == list(tiny.content["t10k-labels-idx1-ubyte"][8:])


def test_a_named_directory_needs_no_home(tiny, tmp_path, monkeypatch):
    """A user without a home directory can still name a place."""
    monkeypatch.setattr("paceline.tasks.data.obtain.Path.home", _no_home)
    named = tiny.write(tmp_path / "named")

    obtained = obtain("tiny", named)

    assert obtained.root == named
    with pytest.raises(PacelineError, match="no home directory"):
        obtain("tiny")


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_waiting_for_a_process_that_hangs_has_an_end(tiny, cache, monkeypatch):
    """After the limit, the message names the process and what to do."""
    monkeypatch.setattr(fetch_lock, "WAIT_LIMIT_S", 0.3)
    folder = cache / tiny.dataset.folder
    folder.mkdir(parents=True)
    told = []
    with (folder / fetch_lock.LOCK_NAME).open("w") as holder:
        holder.write("4711\n")
        holder.flush()
        fcntl.flock(holder, fcntl.LOCK_EX)
        start = time.monotonic()
        with pytest.raises(PacelineError, match="process 4711 has been fetching"):
            obtain("tiny", on_progress=told.append)
        waited = time.monotonic() - start

    assert waited < 5
    assert "waiting for process 4711" in told[0].message
