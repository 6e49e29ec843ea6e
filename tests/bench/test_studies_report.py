"""The studies' pages: from records alone, every number with its n, what was cut off shown as such."""

import re

import pytest
from bench.studies import ladder, minima, page_minima, page_regimes, report
from bench.studies.cells import Study
from bench.studies.compare import arrivals
from bench.studies.pages import arrival_text, mean_text, median_text
from bench.studies.rungs import SIDES
from bench.studies.search import Side, as_result, climb
from bench.studies.trial import as_bytes

from paceline.records.rundir import write_atomic

MACHINE = {"cpu": "An Invented CPU", "usable_cores": 2, "git_commit": "0123456789abcdef", "source_changed": False}


def record(setting, seed, accuracies, steps_each=100, end="finished", **more):
    """An invented cell: one evaluation every `steps_each` steps."""
    evaluations = [
        {
            "step": steps_each * k,
            "samples": 1000 * k,
            "elapsed_s": 2.0 * k,
            "metrics": {"accuracy": value, "loss": 1 - value},
        }
        for k, value in enumerate(accuracies, start=1)
    ]
    last = len(accuracies)
    training = {
        "end": end,
        "steps": steps_each * last,
        "samples": 1000 * last,
        "epochs": float(last),
        "elapsed_s": 2.0 * last,
        "train_loss": 0.25,
        "global_batch": 128,
        "train_samples": 60_000,
        "evaluations": evaluations,
    }
    return {
        "schema": 1,
        "setting": setting,
        "seed": seed,
        "kind": "train",
        "command": [],
        "started_at": "2026-01-02T03:04:05+00:00",
        "duration_s": 60.0,
        "versions": {"paceline": "0.0", "torch": "2.x"},
        "training": training,
        "machine": MACHINE,
        **more,
    }


def regime_records():
    """Batch 128 arrives after 400 steps, 512 after 200 (linear rule), 8192 never."""
    return [
        *(record("b0128-none-target", seed, [0.8, 0.85, 0.89, 0.905]) for seed in (0, 1)),
        record("b0512-linear-target", 0, [0.88, 0.91]),
        record("b8192-none-target", 0, [0.5, 0.6, 0.7], steps_each=8),
        record("b8192-linear-target", 0, [], end="diverged"),
        *(record("b0128-none-10ep", seed, [0.9, value]) for seed, value in enumerate((0.92, 0.925, 0.93))),
        record("b8192-none-10ep", 0, [0.7, 0.75]),
    ]


def store(root, study, records):
    """Write records as the harness does."""
    for one in records:
        write_atomic(root / study / "cells" / f"{one['setting']}_seed{one['seed']}.json", as_bytes(one))


def test_the_regimes_page_shows_what_was_cut_off_as_larger_than_its_bound():
    """8192 was given up after 24 steps, so its steps to the target stand as > 24, and the diverged one as diverged."""
    text = page_regimes.render(regime_records()).text

    assert "| 128 | either | 2 of 2 | 400 (400 to 400) | 4,000 (4,000 to 4,000) | 8 (8 to 8) | 90.50 % |" in text
    assert "| 512 | linear rule | 1 of 1 | 200 |" in text
    assert "| 8192 | no rule | 0 of 1 | > 24 | > 3,000 | > 6 | 70.00 % |" in text
    assert "| 8192 | linear rule | 0 of 1 | diverged | diverged | diverged | none |" in text


def test_the_regimes_page_gives_each_accuracy_its_n_and_interval():
    """Three seeds have Student's interval (92.5, standard error 0.2887, t 4.3027); one has none and says so."""
    text = page_regimes.render(regime_records()).text

    assert "92.50 [91.26, 93.74], n = 3" in text
    assert "75.00, n = 1 (no interval)" in text


def test_the_regimes_page_names_the_regime_by_the_slope():
    """From 400 steps at 128 to 200 at 512 the slope is -0.5, diminishing; batch 8192 never arrived and has none."""
    text = page_regimes.render(regime_records()).text

    assert "linear rule: 128 to 512: -0.50 (diminishing returns); 8192: not reached by most" in text
    assert "512 to 8192" not in text
    assert [page_regimes.regime(slope) for slope in (-0.95, -0.5, -0.1)] == [
        "near perfect scaling",
        "diminishing returns",
        "little or no gain",
    ]


def test_every_page_says_on_what_it_was_measured_and_what_it_does_not_show():
    """Hardware, software, commit, cost and limits are on the page."""
    text = page_regimes.render(regime_records()).text

    assert "An Invented CPU, 2 cores" in text
    assert "torch 2.x" in text
    assert "commit 0123456789" in text
    assert "Cost: 9 cell(s), 9.0 min in all; 2026-01-02." in text
    assert "## What this does not show" in text


def invented_search(tmp_path):
    """A search and a confirmation whose accuracies follow from the flags, through the real code."""
    records = {}

    def run(cells):
        found = {}
        for cell in cells:
            value = 0.80 + 0.01 * len(set(cell.flags.items()) - set(SIDES["large"][0].items()))
            end = "diverged" if cell.flags["--lr-rule"] == "linear" and cell.flags["--warmup"] == "0" else "finished"
            found[cell.name] = record(cell.setting, cell.seed, [] if end == "diverged" else [value], end=end)
        records.update(found)
        return found

    sides = {name: Side(name, dict(start)) for name, (start, _) in SIDES.items()}
    for name, (_, rungs) in SIDES.items():
        for number, rung in enumerate(rungs, start=1):
            climb(sides[name], number, rung, run)
    search = {name: as_result(side) for name, side in sides.items()}
    store(tmp_path, ladder.SEARCH, records.values())
    write_atomic(tmp_path / ladder.SEARCH / "result.json", as_bytes(search))
    return search


def invented_confirmation(tmp_path, search, monkeypatch):
    """Ten seeds a side: the large batch half a point behind."""

    def measure(study, cell, program, data_dir):
        value = (0.925 if cell.setting == "baseline" else 0.920) + 0.0001 * (cell.seed % 10)
        return {**record(cell.setting, cell.seed, [value]), "command": cell.command}

    monkeypatch.setattr("bench.studies.cells.measure", measure)
    study = Study(ladder.CONFIRM, root=tmp_path, tell=lambda line: None)
    write_atomic(study.folder / "result.json", as_bytes(ladder.confirm(study, search)))


def test_the_ladder_page_before_the_confirmation_claims_nothing(tmp_path):
    """A search alone is shown as such, with every cell that was tried and those that diverged."""
    invented_search(tmp_path)

    page = report.pages(tmp_path)[0]

    assert "**Not confirmed yet.**" in page.text
    assert "linear diverged" in page.text
    assert all(f"{name}-" in page.text for name in ("lars", "lamb", "novograd", "muon", "adamw"))
    assert "Accuracy kept" not in page.text
    assert set(page.figures) == {"ladder-search.svg"}


def test_the_ladder_page_leads_with_the_confirmed_difference(tmp_path, monkeypatch):
    """The sentence with the interval comes first, with n, the checks of the method and both commands."""
    search = invented_search(tmp_path)
    invented_confirmation(tmp_path, search, monkeypatch)

    page = report.pages(tmp_path)[0]

    assert "**Accuracy lost: -0.50 points [-0.53, -0.47] (95 %, Welch's t, n = 10 and 10)" in page.text
    assert page.text.index("Accuracy lost") < page.text.index("## Confirmation") < page.text.index("## The way there")
    assert "Shapiro" in page.text
    assert "paceline train fashion-mnist --global-batch 4096" in page.text
    assert "times the epochs of the baseline" in page.text
    assert set(page.figures) == {"ladder-search.svg", "ladder-confirm.svg"}


def landscape(setting, seed, kind, result):
    """An invented measurement."""
    made = record(setting, seed, [0.1], kind=kind, result=result)
    del made["training"], made["versions"]
    return made


def minima_records():
    """Two seeds of two settings, with plain and weighted numbers; the third setting has none."""
    made = []
    for seed in (0, 1):
        for setting, top in (("small", 10.0), ("large-none", 40.0)):
            made.append(record(setting, seed, [0.92]))
            result = {
                "curvature_loss": 0.1 + seed,
                "gradient_norm": 0.01,
                "eigenvalues": {"values": [top + seed, 1.0], "weighted_values": [2.0 + seed], "converged": seed == 0},
                "trace": {"value": 100.0 + seed, "weighted_value": float("nan")},
                "density": {"grid": [0.0, 1.0], "density": [1.0, 0.1]},
                "line": {"points": [-1.0, 0.0, 1.0], "loss": [1.0, 0.2, 1.0]},
            }
            made.append(landscape(f"{setting}-sharpness", seed, "sharpness", result))
        way = {"interpolation": {"points": [0.0, 1.0], "loss": [0.2, 0.3], "barrier": 0.5 + seed}}
        made.append(landscape("small-to-large-none", seed, "interpolation", way))
    return made


def test_the_minima_page_sets_plain_measures_beside_aware_ones():
    """Both tables are there, medians with range and n; a number that is missing or not finite is not measured."""
    text = page_minima.render(minima_records()).text

    assert "| largest eigenvalue | 10.5 (10 to 11), n = 2 | 40.5 (40 to 41), n = 2 | not measured |" in text
    assert (
        "| largest eigenvalue, weighted with the weights' sizes | 2.5 (2 to 3), n = 2 | 2.5 (2 to 3), n = 2 |" in text
    )
    assert "| trace, weighted with the squared weights | not measured | not measured | not measured |" in text
    assert (
        "| 128 | 100 | 92.00 (92.00 to 92.00), n = 2 | 0.6 (0.1 to 1.1), n = 2 | 0.01 (0.01 to 0.01), n = 2 |" in text
    )
    assert "In 2 measurement(s) the eigenvalues had not converged" in text
    assert "| 128 to 4096, no rule | 1 (0.5 to 1.5), n = 2 |" in text
    for name in ("Keskar", "Dinh", "Hoffer", "Goyal", "Shallue"):
        assert f"*{name} et al." in text


def test_the_minima_page_leaves_out_what_no_record_has():
    """Without densities, slices and interpolations there are no such figures."""
    page = page_minima.render([one for one in minima_records() if one["kind"] == "train"])

    assert set(page.figures) == {"minima-sharpness.svg"}
    assert "barrier in loss" not in page.text


def test_pages_are_written_from_records_and_the_same_records_give_the_same_files(tmp_path):
    """Two renderings agree to the byte, figures that a page names exist, and nothing is written without records."""
    root, docs = tmp_path / "records", tmp_path / "docs"
    assert report.pages(root) == []
    store(root, "regimes", regime_records())
    store(root, minima.NAME, minima_records_as_json())

    written = report.write(report.pages(root), docs)
    first = {path.name: path.read_bytes() for path in written}
    again = {path.name: path.read_bytes() for path in report.write(report.pages(root), docs)}

    assert first == again
    for path in docs.glob("*.md"):
        for name in re.findall(r"\]\(([^)]+\.svg)\)", path.read_text()):
            assert (docs / name).read_bytes().startswith(b"<?xml")
    assert {"regimes.md", "minima.md"} <= set(first)


def minima_records_as_json():
    """Without the NaN that JSON does not have."""
    found = minima_records()
    for one in found:
        if one["kind"] == "sharpness":
            one["result"]["trace"]["weighted_value"] = None
    return found


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([90.0], "90.00, n = 1 (no interval)"),
        ([90.0, 91.0], "90.50 (90.00 to 91.00), n = 2"),
        ([90.0, 91.0, 92.0], "91.00 [88.52, 93.48], n = 3"),
        ([], "none"),
    ],
)
def test_a_mean_never_stands_without_its_n(values, text):
    """One value has no interval, two have a range, three have Student's interval (1 x 4.3027 / sqrt 3)."""
    assert mean_text(values) == text


def test_medians_show_their_range_and_censoring():
    """A range with a run that was cut off is open above; most cut off leaves only the bound."""
    assert median_text([1.0, 3.0, 2.0]) == "2 (1 to 3), n = 3"
    assert arrival_text(arrivals([400.0, None, 300.0], [None, 900.0, None])) == "400 (300 to > 400)"
    assert arrival_text(arrivals([None, None], [900.0, 800.0])) == "> 800"
    assert arrival_text(arrivals([None], [None])) == "diverged"
