"""IDX files open as the arrays that were written, or not at all."""

import gzip
import resource
import struct
import warnings
from pathlib import Path

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torchvision.datasets import mnist

from paceline.records.errors import PacelineError
from paceline.tasks.data.idx import open_idx


def encode(array):
    """The format as its authors describe it, independent of the reader."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=npst.arrays(np.uint8, npst.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=6)))
def test_any_array_comes_back_as_it_was_written(tmp_path, array):
    """Shape, type and every element survive, whatever the number of dimensions, also with no element at all."""
    path = tmp_path / "array"
    path.write_bytes(encode(array))

    opened = open_idx(path)

    assert opened.dtype == np.uint8
    assert opened.shape == array.shape
    assert np.array_equal(opened, array)


def test_torchvision_reads_the_same_array(tmp_path):
    """torchvision's own reader, which knows nothing of ours, gives equal values."""
    path = tmp_path / "images"
    path.write_bytes(encode(np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)))

    theirs = mnist.read_image_file(str(path))
    ours = open_idx(path)

    assert np.array_equal(ours, theirs.numpy())


def test_torch_takes_the_mapped_array_without_a_warning_or_a_copy(tmp_path):
    """A tensor made of the array shares its memory, and torch does not complain that it is read-only."""
    path = tmp_path / "array"
    path.write_bytes(encode(np.arange(12, dtype=np.uint8)))
    array = open_idx(path)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(array)

    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.tolist() == list(range(12))


def test_writing_into_the_array_leaves_the_file_as_it_is(tmp_path):
    """The mapping is private: a careless in-place operation cannot damage the data set."""
    path = tmp_path / "array"
    content = encode(np.zeros(100, dtype=np.uint8))
    path.write_bytes(content)

    array = open_idx(path)
    array[:] = 255

    assert array.sum() == 25500
    assert path.read_bytes() == content


def test_opening_reads_no_elements(tmp_path):
    """A file of 1 GiB (sparse) opens without taking its size in memory: pages come when they are used."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(struct.pack(">BBBB2I", 0, 0, 8, 2, 1 << 15, 1 << 15))
        file.truncate(12 + (1 << 30))

    before = resident_bytes()
    array = open_idx(path)
    last = array[-1, -1]
    growth = resident_bytes() - before

    assert array.shape == (1 << 15, 1 << 15)
    assert last == 0
    assert growth < 64 << 20


def resident_bytes():
    """Memory of this process that is in use now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


GOOD = encode(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not an IDX file"),
        (b"\0\0", "not an IDX file"),
        (b"\0\0\x0d\x01" + bytes(20), "begins with 00 00 0d 01"),
        (b"\0\0\x08\0" + bytes(20), "not an IDX file"),
        (b"\0\0\x08\xff" + bytes(20), "not an IDX file"),
        (gzip.compress(GOOD, mtime=0), "begins with 1f 8b"),
        (GOOD[:9], "ends within its header"),
        (GOOD[:-1], "announces 2 x 3 x 4 bytes, 40 in all, and it has 39"),
        (GOOD + b"\0", "is longer than its header says"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path, content, says):
    """Bad magic, foreign types, short and long files give one message that names the file and what was found."""
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(PacelineError) as caught:
        open_idx(path)

    assert str(path) in caught.value.what
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_is_one_message(tmp_path):
    """No traceback of open(): what cannot be read, and why."""
    with pytest.raises(PacelineError, match=r"cannot read .*absent") as caught:
        open_idx(tmp_path / "absent")

    assert caught.value.why == "No such file or directory"
