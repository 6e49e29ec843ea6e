"""The table of data sets says the truth about the real files; data sets cost no torch."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from paceline.tasks.data.catalog import CATALOG, find_faults
from paceline.tasks.data.idx import open_idx
from paceline.tasks.data.obtain import cache_root, whereabouts

# Asked before any test moves the home directory away.
REAL_CACHE = cache_root()
REAL = CATALOG["fashion-mnist"]


@pytest.fixture(scope="module")
def real_raw():
    """The real Fashion-MNIST, if this machine has it already; tests need no network."""
    if find_faults(REAL_CACHE, REAL):
        pytest.skip("Fashion-MNIST is not in the cache (paceline data fetch fashion-mnist)")
    return REAL.raw(REAL_CACHE)


def test_every_entry_is_complete():
    """Names fit their keys, checksums have 64 hexadecimal digits, sizes fit the samples, a licence is stated."""
    for name, dataset in CATALOG.items():
        assert dataset.name == name
        assert dataset.files
        assert all(len(file.sha256) == 64 and int(file.sha256, 16) >= 0 for file in dataset.files)
        assert set(dataset.samples) == {"train", "eval"}
        assert dataset.licence
        assert dataset.mirrors or dataset.debian_package


def test_sizes_follow_from_the_format():
    """Sizes of Fashion-MNIST's files are header + samples x 28 x 28, computed from the format's description."""
    expected = {
        "train-images-idx3-ubyte": 16 + 60_000 * 28 * 28,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 28 * 28,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }

    assert {file.name: file.size_bytes for file in REAL.files} == expected


def test_names_and_mirrors_are_torchvisions():
    """Folder, file names and mirrors are those of the installed torchvision, not a copy that grew old."""

    assert datasets.FashionMNIST.__name__ == REAL.folder
    assert [f"{file.name}.gz" for file in REAL.files] == sorted(
        (name for name, _ in datasets.FashionMNIST.resources), key=lambda name: (name[:3] != "tra", name)
    )
    assert list(REAL.mirrors) == datasets.FashionMNIST.mirrors


def test_the_real_set_has_its_classes_in_equal_numbers(real_raw):
    """6,000 and 1,000 samples of each of ten classes, as the paper says (Xiao et al. 2017, table 1)."""
    train = open_idx(real_raw / "train-labels-idx1-ubyte")
    evaluation = open_idx(real_raw / "t10k-labels-idx1-ubyte")

    assert np.bincount(train).tolist() == [6000] * 10
    assert np.bincount(evaluation).tolist() == [1000] * 10
    assert open_idx(real_raw / "train-images-idx3-ubyte").shape == (60_000, 28, 28)
    assert open_idx(real_raw / "t10k-images-idx3-ubyte").shape == (10_000, 28, 28)


def test_torchvision_reads_the_real_set(real_raw):
    """torchvision, without downloading, finds 60,000 and 10,000 samples with the same bytes."""

    train = datasets.FashionMNIST(REAL_CACHE, train=True, download=False)
    evaluation = datasets.FashionMNIST(REAL_CACHE, train=False, download=False)

    assert (len(train), len(evaluation)) == (60_000, 10_000)
    assert np.array_equal(evaluation.data.numpy(), open_idx(real_raw / "t10k-images-idx3-ubyte"))
    assert np.array_equal(train.targets.numpy(), open_idx(real_raw / "train-labels-idx1-ubyte"))


def test_an_installed_package_is_known_without_unpacking_it(tiny, tmp_path):
    """whereabouts names the directory of Debian's package when all its files are there."""
    tiny.use(debian_package="dataset-tiny", debian_dir=str(tmp_path))
    before = whereabouts("tiny").place
    for name in tiny.content:
        (tmp_path / f"{name}.gz").touch()

    after = whereabouts("tiny").place

    assert before is None
    assert str(tmp_path) in after


def test_finding_data_loads_neither_torch_nor_a_network_library(tiny, cache):
    """A set that is there costs no import of torch, numpy, urllib's http client or ssl."""
    tiny.write(cache)
    program = (
        "import sys\n"
        "from paceline.tasks.data.catalog import CATALOG, DataFile, DataSet\n"
        "from paceline.tasks.data.obtain import obtain\n"
        f"CATALOG['tiny'] = {tiny.dataset!r}\n"
        "obtain('tiny')\n"
        "print([name for name in ('torch', 'numpy', 'urllib.request', 'ssl', 'typer', 'rich') if name in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        cwd=Path.cwd(),
    )

    assert result.stdout == "[]\n", result.stderr
