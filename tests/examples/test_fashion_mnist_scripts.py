"""The plain scripts of the workshop, run as users run them, on a small set in torchvision's layout."""

import ast
import itertools
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SINGLE, DDP = EXAMPLES / "fashion_mnist_single.py", EXAMPLES / "fashion_mnist_ddp.py"
TRAIN, TEST = 331, 103  # neither is a multiple of the batch or of the number of ranks
EPOCH = re.compile(r"^epoch (\d+): loss ([\d.]+), accuracy ([\d.]+) \((\d+) of (\d+)\), \d+ images/s$", re.MULTILINE)


@dataclass(frozen=True)
class Epoch:
    number: int
    loss: float
    accuracy: float
    correct: int
    counted: int


def write_idx(path, array):
    """The format of the data set's files: magic (type, dimensions), sizes, bytes."""
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Ten classes that can be learnt: each has a bright block at a place of its own, under noise."""
    root = tmp_path_factory.mktemp("data")
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    random = np.random.default_rng(7)
    for split, samples in (("train", TRAIN), ("t10k", TEST)):
        labels = random.integers(10, size=samples)
        images = random.integers(120, size=(samples, 28, 28))
        for image, label in zip(images, labels, strict=True):
            row, column = 2 + 12 * (label // 5), 1 + 5 * (label % 5)
            image[row : row + 8, column : column + 5] += 110
        write_idx(raw / f"{split}-images-idx3-ubyte", images)
        write_idx(raw / f"{split}-labels-idx1-ubyte", labels)
    return root


def run(start, script, data_dir, *options):
    """Standard output of a script."""
    command = [*start, str(script), "--data-dir", str(data_dir), "--loader-workers", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_single(data_dir, *options):
    """Output of the single-device script at 32 samples a step."""
    return run([sys.executable], SINGLE, data_dir, "--batch-size", "32", *options)


def run_ddp(data_dir, *options):
    """Output of the twin on 2 ranks, at 32 samples a step as well."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return run(torchrun, DDP, data_dir, "--batch-size", "16", *options)


def epochs(output):
    """The line of each epoch, as numbers."""
    found = [Epoch(int(n), float(s), float(a), int(c), int(k)) for n, s, a, c, k in EPOCH.findall(output)]
    assert found, output
    return found


THREE = ("--epochs", "3")
UNTIL = ("--epochs", "25", "--target-accuracy", "0.9", "--patience", "2")


@pytest.fixture(
    scope="module", params=[run_single, pytest.param(run_ddp, marks=pytest.mark.slow)], ids=["single", "ddp"]
)
def outputs(request, data_dir):
    """What a script prints in three epochs, and on its way to a target."""
    return request.param(data_dir, *THREE), request.param(data_dir, *UNTIL)


def test_a_script_counts_every_test_sample_learns_and_repeats_itself(outputs):
    """One process or one rank of two prints; losses fall over exactly the test set; a second run begins alike."""
    first, second = outputs

    seen = epochs(first)
    assert [epoch.number for epoch in seen] == [1, 2, 3]
    assert [epoch.counted for epoch in seen] == [TEST] * 3
    assert seen[0].loss > seen[1].loss > seen[2].loss
    assert epochs(second)[:2] == seen[:2]


def test_a_script_stops_at_the_target(outputs):
    """It stops after `patience` epochs in a row at a target that it reaches, long before its last epoch."""
    _, output = outputs

    seen = epochs(output)
    assert len(seen) < 25
    reached = [epoch.correct / TEST >= 0.9 for epoch in seen]
    assert reached[-2:] == [True, True]
    assert (True, True) not in itertools.pairwise(reached[:-1])
    assert f"target accuracy 0.9 reached in epoch {len(seen)}" in output


def test_limit_uses_the_first_samples_of_each_set(data_dir):
    """--limit N trains on N samples and evaluates N."""
    output = run_single(data_dir, "--epochs", "1", "--limit", "50")

    assert output.startswith("50 training samples, 50 test samples, batch 32")
    assert [epoch.counted for epoch in epochs(output)] == [50]


def test_the_twins_differ_only_where_data_parallelism_needs_it():
    """Network and options are the same in both scripts (the options' names and defaults), so that a diff teaches."""
    single, twin = (ast.parse(path.read_text()) for path in (SINGLE, DDP))

    assert _dump(single, "CNN") == _dump(twin, "CNN")
    assert _options(single) == _options(twin)


def _named(tree, name):
    return next(node for node in tree.body if getattr(node, "name", None) == name)


def _dump(tree, name):
    return ast.dump(_named(tree, name))


def _options(tree):
    calls = [node for node in ast.walk(_named(tree, "parse_arguments")) if isinstance(node, ast.Call)]
    added = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    return [
        (call.args[0].value, [ast.dump(k.value) for k in call.keywords if k.arg in ("type", "default")])
        for call in added
    ]
