"""What is looked at before anything is written, and what a measurement says that it will cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.manifest import directory_name, read_manifest
from paceline.checkpoint.state import MODEL_FILE
from paceline.landscape.cost import measure_pace
from paceline.landscape.preflight import make_losses, preflight
from paceline.records.errors import PacelineError
from tests.landscape.problems import conv_net, image_task, session
from tests.landscape.test_paths import PLACES, apart, checkpoint, path_session


def test_too_few_samples_for_a_batch_norm_are_refused_for_slices_too(tmp_path: Path) -> None:
    """Whatever curvature looks at, and before there is anything to clean up."""
    made = session(image_task(), conv_net(), tmp_path / "parts", samples=1, measure="line,trace")

    with pytest.raises(PacelineError, match="chunks of at least 2 samples"):
        make_losses(made)

    assert not (tmp_path / "parts").exists()


def test_the_checkpoints_of_a_path_are_counted(tmp_path: Path) -> None:
    """Also where it is only asked for by the plane of the surface; none otherwise."""
    path = path_session(tmp_path / "a", PLACES, plane="pca", measure="surface")
    line = path_session(tmp_path / "b", PLACES, directions="raw", measure="line")

    assert (preflight(path)[0], preflight(line)[0]) == (4, 0)


def test_the_other_runs_weights_are_known_by_the_digest_in_its_manifest(tmp_path: Path) -> None:
    """The same that it has as the run that is looked at, in every precision."""
    one, other = apart()
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {"target": str(tmp_path / "one"), "other": str(tmp_path / "two")}

    _, other_weights = preflight(session(image_task(), one, tmp_path / "parts", **settings))

    manifest = read_manifest(tmp_path / "two" / "checkpoints" / directory_name(2))
    assert other_weights == manifest.files[MODEL_FILE].sha256


def test_the_cost_can_be_measured_wherever_slices_can(tmp_path: Path) -> None:
    """Three samples cut into twos leave one that batch norm could not take."""
    made = session(image_task(3), conv_net(), tmp_path, samples=2, curvature_samples=2, chunk=2, measure="line,trace")

    pace = measure_pace(made)

    assert pace.value > 0
    assert pace.product > 0
