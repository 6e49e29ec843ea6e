"""The report page: valid, self-contained, complete, and deaf to what a run calls itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from paceline.records.errors import PacelineError
from paceline.records.schema import Evaluation, Measure, Note
from paceline.records.target import parse_target
from paceline.report import words
from paceline.report.comparison import compare
from paceline.report.page.figures import evenly
from paceline.report.page.run_page import render_page, write_page
from paceline.report.page.theme import DARK, LIGHT, look
from paceline.report.quantities import quantities
from paceline.report.run_record import load_run
from paceline.report.summary import summarise

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed, in order, and ids are unique."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        """Note what opens."""
        self.attributes.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Note what closes, and whether it was open."""
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes nothing")

    def handle_data(self, data):
        """Tell scripts from words."""
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        """What a person reads, spaces made one."""
        return " ".join(" ".join(self.words).split())


def page_of(*paths, target=None):
    """The page of these run directories, as HTML."""
    loaded = [load_run(path) for path in paths]
    goal = parse_target(target) if target else None
    return render_page(loaded, [summarise(run, goal) for run in loaded])


def kinds(runs):
    """Run directories of every kind that has a page of its own."""
    blind = [runs.start(), *[runs.step(k, 0.1 * k) for k in range(1, 31)]]
    return {
        "plain": [runs.plain()],
        "real": [runs.realistic("real", resumed=True)],
        "several": [runs.plain("a"), runs.realistic("b"), runs.write("c", [])],
        "blind": [runs.write("blind", blind)],
        "dead": [runs.write("dead", [runs.start()])],
        "only evaluated": [runs.write("only", [runs.start(), runs.evaluation(0, 1.0, 0.5)])],
        "nan": [runs.write("nan", [runs.start(), runs.step(1, 0.1, loss=float("nan"))], tail=b'{"to')],
    }


def test_pages_of_every_kind_of_run_are_well_formed(runs):
    """Tags are balanced and ids unique, whatever is missing from the run."""
    for name, paths in kinds(runs).items():
        page = Page(page_of(*paths))

        assert page.faults == [], name
        assert len(page.ids) == len(set(page.ids)), name
        assert page.attributes[0] == ("html", {"lang": "en"}), name


def test_labels_point_at_something(runs):
    """Every aria-labelledby and every link inside the page names an id that is there."""
    page = Page(page_of(runs.plain("a"), runs.plain("b")))

    pointed = {attrs["aria-labelledby"] for _, attrs in page.attributes if "aria-labelledby" in attrs}
    pointed |= {attrs["href"][1:] for _, attrs in page.attributes if attrs.get("href", "").startswith("#")}

    assert pointed
    assert pointed <= set(page.ids)


def test_the_page_asks_for_nothing_outside_itself(runs):
    """No attribute and no style rule refers to an address; the policy forbids requests besides."""
    html = page_of(runs.plain())

    page = Page(html)

    outside = [(t, a) for t, a in page.attributes if any(re.match(r"(https?:)?//", str(v)) for v in a.values())]
    style = html[html.index("<style>") : html.index("</style>")]
    policy = next(a["content"] for t, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy")
    assert outside == []
    assert "url(" not in style
    assert "@import" not in style
    assert policy.startswith("default-src 'none'; ")


def test_the_policy_allows_exactly_the_scripts_of_the_page(runs):
    """Each script that runs has its hash in the policy, so nothing that a run smuggled in could."""
    page = Page(page_of(runs.plain()))
    policy = next(a["content"] for t, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy")
    kinds_of_script = [a.get("type") for t, a in page.attributes if t == "script"]

    running = [text for text, kind in zip(page.scripts, kinds_of_script, strict=True) if kind is None]

    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in running}
    assert len(running) == 2
    assert set(re.findall(r"'(sha256-[^']+)'", policy)) == hashes


EVIL = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>{{ 7*7 }}<!--'


def test_names_commands_and_notes_are_text_wherever_they_stand(runs):
    """Markup in anything that comes from a run is shown, never obeyed."""
    harmless = Page(page_of(runs.plain("a"), runs.plain("b")))
    info = msgspec.structs.replace(
        runs.info(EVIL),
        command=["paceline", EVIL],
        config={"lr": 0.1, EVIL: EVIL, "target": f"{EVIL}=1"},
        versions={EVIL: EVIL},
        precision=EVIL,
    )
    metric = Measure(value=0.5, count=10)
    events = [runs.start(), runs.step(1, 0.1), Note(message=EVIL), Note(message=EVIL, level="warning")]
    events.append(
        Evaluation(step=1, epoch=1, samples=64, elapsed_s=1, duration_s=0.1, metrics={EVIL: metric, "accuracy": metric})
    )

    page = Page(page_of(runs.write("evil", events, info=info), runs.plain("b")))

    assert page.faults == []
    assert not any(name.startswith("on") for _, attrs in page.attributes for name in attrs)
    assert not any(tag == "img" for tag, _ in page.attributes)
    assert len(page.scripts) == len(harmless.scripts) == 3
    assert EVIL in page.text
    assert "49" not in page.text.split(EVIL)[0][-20:]
    assert json.loads(page.scripts[0])["figures"][0]["series"][0]["name"] == EVIL


def test_all_numbers_of_the_card_are_in_the_page(runs):
    """What the terminal says, the page says: values, details, shares, phases, command, warnings."""
    path = runs.realistic("real", resumed=True)
    run = load_run(path)
    summary = summarise(run)

    text = Page(render_page([run], [summary])).text

    said = [tile.value for tile in quantities(summary)]
    said += [detail for tile in quantities(summary) for detail in tile.details]
    said += [words.share(phase.share) for phase in summary.phases]
    said += [words.duration(phase.seconds) for phase in summary.phases]
    said += [summary.first_line, summary.ended, words.command(run.info), summary.throughput.how, *summary.notes]
    said += [run.info.started_at, summary.where.run, summary.where.checkpoint]
    assert len(said) > 30
    assert [one for one in said if one not in text] == []


def test_every_evaluation_is_in_a_table(runs):
    """The numbers of the accuracy figure can be read without seeing it."""
    text = Page(page_of(runs.plain())).text

    assert "10 1.00 640 1.50 s 0.8500 850 of 1,000" in text
    assert "20 2.00 1,280 3.00 s 0.9120 912 of 1,000" in text


def test_what_was_not_observed_is_said(runs):
    """A run without evaluations or steps has no number where it has none."""
    text = Page(page_of(runs.write("dead", [runs.start()]))).text

    assert "not observed" in text
    assert "No end was recorded before its first step: it was killed, or still goes on." in text
    assert "nan" not in text.lower()


def test_several_runs_show_what_differs_and_by_how_much(runs):
    """Settings that differ, numbers with ratios, and the caution that goes with them."""
    other = runs.info("slow", world=4)

    html = page_of(runs.plain("fast"), runs.plain("slow", pace=2.0, info=other))

    text = Page(html).text
    assert "batch.world 2 4" in text
    assert "training time 3.25 s 6.50 s × 2.000" in text
    assert "Each run was measured once" in text


def test_figures_get_columns_of_the_runs_only(runs):
    """The data for the script are what was loaded, with None where a number is not finite."""
    loaded = load_run(runs.write("one", [runs.start(), runs.step(1, 0.25, loss=2.5), runs.evaluation(1, 1.0, 0.5)]))

    page = Page(render_page([loaded], [summarise(loaded)]))

    drawn = {figure["id"]: figure["series"] for figure in json.loads(page.scripts[0])["figures"]}
    single = drawn["plot-loss"][0]
    assert single["x"] == {"by": "axis", "of": {"step": [1], "samples": [64], "elapsed_s": [0.25]}}
    assert single["y"] == [2.5]
    assert drawn["plot-speed"][0]["y"] == [256]
    assert drawn["plot-metric-0"][0]["y"] == [0.5]


def test_smoothing_keeps_sums(runs):
    """Means over fewer windows are sums over counts: their weighted mean stays the same."""
    loaded = load_run(runs.realistic("real"))

    result = loaded.windows.merged(50)

    assert len(result.step) <= 50
    assert result.step[-1] == 2345
    before = (loaded.windows.loss * loaded.windows.count).sum() / loaded.windows.count.sum()
    after = (result.loss * result.count).sum() / result.count.sum()
    assert after == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("n", [0, 1, 5, 400, 401, 100_000])
def test_evenly_spread_indices_hold_both_ends(n):
    """At most as many as asked for, none twice, first and last included."""
    result = evenly(n, 400)

    assert len(result) == min(n, 400)
    assert result == sorted(set(result))
    assert not n or (result[0], result[-1]) == (0, n - 1)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2 of an #rrggbb colour."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2.2, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_have_enough_contrast(theme):
    """4.5 to 1 for text on both grounds, 3 to 1 for lines and marks."""
    text = {(n, g): contrast(theme[n], theme[g]) for n in ("ink", "soft", "accent", "warn") for g in ("paper", "panel")}
    lines = {name: contrast(theme[name], theme["paper"]) for name in theme if name.startswith("run-")}

    assert {pair: ratio for pair, ratio in text.items() if ratio < 4.5} == {}
    assert {name: ratio for name, ratio in lines.items() if ratio < 3} == {}
    assert len(lines) == 6


def test_thirty_six_runs_can_be_told_apart():
    """No two runs share both colour and dash, nor both colour and marker."""
    looks = [look(index) for index in range(36)]

    assert len({(one.colour, one.dash) for one in looks}) == 36
    assert len({(one.colour, one.marker) for one in looks}) == 36
    assert len({(one.dash, one.marker) for one in looks[:6]}) == 6


def test_a_page_that_cannot_be_written_leaves_the_old_one(runs, tmp_path):
    """A directory where the file should go: one message that names the option, and nothing half-written."""
    run = load_run(runs.plain())
    place = tmp_path / "page.html"
    place.mkdir()

    with pytest.raises(PacelineError) as caught:
        write_page([run], place)

    assert "--output" in caught.value.hint
    assert caught.value.exit_code == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "plain"]


def test_a_comparison_of_one_run_has_no_table(runs):
    """One run differs from nothing."""
    run = load_run(runs.plain())

    html = render_page([run], [summarise(run)], compare([run], [summarise(run)]))

    assert "What differs" not in html
