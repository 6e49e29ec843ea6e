"""Damaged copies: an error where the user named them, repaired in the cache, passed over in ./data."""

import hashlib

import pytest

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.data.obtain import obtain


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda true: true[:-5], "has 61 bytes, and 66 are expected"),
        (lambda true: true + b"x", "has 67 bytes, and 66 are expected"),
        (lambda true: true[:-1] + bytes([true[-1] ^ 1]), "has the wrong checksum"),
        (lambda true: b"", "has 0 bytes"),
    ],
    ids=["truncated", "too long", "one bit wrong", "empty"],
)
def test_damage_in_a_data_dir_is_an_error_and_nothing_is_replaced(tiny, mirror, tmp_path, damage, says):
    """The message names the file, what was expected and found, and what to do; the user's file is untouched."""
    true = tiny.content["train-labels-idx1-ubyte"] + bytes(18)
    content = damage(true)
    tiny.content["train-labels-idx1-ubyte"] = true
    files = [
        type(file)(file.name, len(true), _sha256(true)) if file.name == "train-labels-idx1-ubyte" else file
        for file in tiny.dataset.files
    ]
    tiny.use(files=tuple(files))
    named = tiny.write(tmp_path / "named", train_labels_idx1_ubyte=content, t10k_images_idx3_ubyte=None)

    with pytest.raises(PacelineError) as caught:
        obtain("tiny", named)

    assert str(tiny.dataset.raw(named) / "train-labels-idx1-ubyte") in caught.value.what
    assert says in caught.value.what
    assert "move them away" in caught.value.hint
    assert caught.value.exit_code == Exit.USAGE
    assert (tiny.dataset.raw(named) / "train-labels-idx1-ubyte").read_bytes() == content
    assert mirror.requests == []


def _sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_a_data_dir_that_is_a_file_is_refused(tiny, mirror, tmp_path):
    """No attempt to write below a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(PacelineError, match="is not a directory"):
        obtain("tiny", tmp_path / "file")


def test_naming_the_raw_directory_leads_to_the_root(tiny, mirror, tmp_path):
    """Whoever names FashionMNIST/raw itself is told which directory to name; nothing is fetched into it."""
    root = tiny.write(tmp_path / "root")

    with pytest.raises(PacelineError) as caught:
        obtain("tiny", tiny.dataset.raw(root))

    assert caught.value.hint == f"use --data-dir {root}"
    assert mirror.requests == []


def test_a_link_that_leads_nowhere_is_damage_and_not_a_missing_file(tiny, mirror, tmp_path):
    """A dangling link in --data-dir is the user's; it is not replaced by a file."""
    named = tiny.write(tmp_path / "named", t10k_labels_idx1_ubyte=None)
    link = tiny.dataset.raw(named) / "t10k-labels-idx1-ubyte"
    link.symlink_to(tmp_path / "gone")

    with pytest.raises(PacelineError, match="leads nowhere"):
        obtain("tiny", named)

    assert link.is_symlink()


def test_damage_in_the_cache_is_repaired_with_a_note(tiny, mirror, cache):
    """Only the damaged file is fetched again."""
    tiny.write(cache, train_images_idx3_ubyte=b"garbage")

    obtained = obtain("tiny")

    assert mirror.requests == ["/train-images-idx3-ubyte.gz"]
    assert tiny.is_whole(cache)
    assert any("train-images-idx3-ubyte has 7 bytes" in note for note in obtained.notes)


def test_damage_in_the_working_directory_is_passed_over_with_a_note(tiny, cache, tmp_path):
    """./data is the user's: it stays as it is, the cache is used, and a note says so."""
    local = tiny.write(tmp_path / "work" / "data", train_images_idx3_ubyte=b"garbage")
    tiny.write(cache)

    obtained = obtain("tiny")

    assert obtained.root == cache
    assert any("./data" in note and "train-images-idx3-ubyte" in note for note in obtained.notes)
    assert (tiny.dataset.raw(local) / "train-images-idx3-ubyte").read_bytes() == b"garbage"


def test_an_incomplete_copy_in_the_working_directory_is_passed_over_with_a_note(tiny, cache, tmp_path):
    """Three of four files are not the set; the note names the one that is missing, and ./data stays as it is."""
    local = tiny.write(tmp_path / "work" / "data", t10k_labels_idx1_ubyte=None)
    tiny.write(cache)

    obtained = obtain("tiny")

    assert obtained.root == cache
    assert any("./data" in note and "t10k-labels-idx1-ubyte is missing" in note for note in obtained.notes)
    assert not (tiny.dataset.raw(local) / "t10k-labels-idx1-ubyte").exists()
