"""docs/studies/plan.md: what was predicted beside what was measured, from records alone."""

import json

from bench.studies import page_plan
from bench.studies.pages import as_svg

FACTS = {"command": ["python", "bench/x.py"], "environment": {"cpu": "An Invented CPU", "cores": 2}}
STEPS = {"batch": 64, "steps": 900.0, "low": 800.0, "high": None, "measured": [850.0, 950.0]}
CASE = {
    "case": "digits, error, 1,437 samples from up to 359",
    "points": [[90, 0.2], [180, 0.12], [359, 0.08]],
    "law": {"scale": 3.0, "exponent": 0.6, "floor": 0.0},
    "beyond": 1437,
    "predicted": 0.04,
    "low": 0.03,
    "high": None,
    "measured": 0.045,
}
TIME = {
    "measured": 0.1, "predicted": 0.09, "low": 0.08, "high": 0.12, "pollux": 0.08, "perfect": 0.02, "inside": True,
    "kind": "more workers", "workers": 8, "micro": 64, "most": 4, "processors": 2,
}  # fmt: skip


def write(root, name, result, table="| a | b |\n|---|---|\n| 1 | 2 |"):
    """A record as benchmarks write it."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(FACTS | result))
    (folder / "README.md").write_text(f"# Title\n\n## A part\n\n{table}\n")


def test_every_record_becomes_a_section_with_its_table_and_picture(tmp_path):
    """Four kinds of prediction, ends that are open included; headings of a record go one level down."""
    write(tmp_path, "2026-01-02_plan_fashion", {"rows": [STEPS]})
    write(tmp_path, "2026-01-02_learning_curves", {"cases": [CASE] * 5})
    write(tmp_path, "2026-01-02_plan_speed", {"sets": {"unseen": [TIME, TIME], "calibration": [TIME]}})
    write(tmp_path, "2026-01-02_noise_scale", {})

    page = page_plan.render(tmp_path)

    assert sum(line.startswith("## ") for line in page.text.splitlines()) == 4
    assert page.text.count("### A part") == 4
    assert page.text.count("| 1 | 2 |") == 4
    assert "`python bench/x.py` on An Invented CPU, 2 cores; record 2026-01-02_plan_speed." in page.text
    assert sorted(page.figures) == ["plan-learning-curves.svg", "plan-plan-fashion.svg", "plan-plan-speed.svg"]
    for name, drawing in page.figures.items():
        assert f"]({name})" in page.text
        assert as_svg(drawing).startswith(b"<?xml")


def test_the_newest_record_counts_and_none_makes_no_page(tmp_path):
    """Records are named by their day; a folder without a result is no record."""
    assert page_plan.render(tmp_path) is None
    write(tmp_path, "2026-01-02_noise_scale", {}, "| old |")
    write(tmp_path, "2026-02-01_noise_scale", {}, "| new |")
    (tmp_path / "2026-03-01_noise_scale").mkdir()

    page = page_plan.render(tmp_path)

    assert "| new |" in page.text
    assert "| old |" not in page.text
