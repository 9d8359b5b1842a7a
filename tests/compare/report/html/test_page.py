"""The page itself: nothing in it clashes, nothing of the data becomes markup, nothing is loaded."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest
from matplotlib.figure import Figure

from compare.report.figures import save_figure
from compare.report.html import build_report, page
from compare.report.html import page as content
from compare.report.html import results as significance
from compare.report.html.page import ReportContent
from compare.report.html.parts import Bar, bar_plot, to_svg
from compare.report.html.sentences import differences
from compare.report.plots import PANEL_INCHES
from tests.kits.hostile import obeyed
from tests.kits.report import change_result, read, write_experiment

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"&'<!--"


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text inside of each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ReportContent:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "TRIALS", 400)
        return read(write_experiment(tmp_path_factory.mktemp("report") / "made"))


@pytest.fixture(scope="module")
def shown(made: ReportContent) -> Page:
    return Page(page.render(made))


def test_ids_differ_and_every_reference_finds_its_own(shown: Page):
    ids = shown.values("id")
    assert len(set(ids)) == len(ids)
    inner = [href[1:] for href in shown.values("href")]
    labels = [name for names in shown.values("aria-labelledby") for name in names.split()]
    clips = [found for value in shown.values("clip-path") for found in re.findall(r"url\(#([^)]+)\)", value)]
    assert min(len(inner), len(labels), len(clips)) > 10
    assert {*inner, *labels, *clips} <= set(ids)


def test_it_needs_nothing_from_anywhere(shown: Page):
    assert all(href.startswith("#") for href in shown.values("href"))
    assert shown.values("src") == shown.values("srcset") == []
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in shown.elements}
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", shown.texts["style"][0])


def test_only_our_own_script_may_run(shown: Page):
    policy = dict(shown.elements[4][1])["content"]
    digest = hashlib.sha256(shown.texts["script"][-1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]


def test_headings_leave_out_no_level(shown: Page):
    levels = [int(tag[1]) for tag, _ in shown.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_text_of_data_stays_text(made: ReportContent):
    sentence = made.sentences[0]
    output = replace(sentence.outputs[0], model=EVIL, pieces=differences(EVIL, "ja"))
    attended = replace(made.viewer.sentences[1], tgt=[EVIL])
    drawing = made.sections[0].drawings[0]
    drawing = replace(drawing, title=EVIL, svg=to_svg(Figure(), "evil", EVIL, EVIL))
    evil = replace(
        made,
        title=EVIL,
        summary=[EVIL],
        unknown=[EVIL],
        sentences=[replace(sentence, src=EVIL, ref=EVIL, outputs=[output])],
        viewer=replace(made.viewer, sentences=[attended]),
        sections=[replace(made.sections[0], notes=[EVIL], drawings=[drawing])],
        results=replace(made.results, rows=[replace(made.results.rows[0], label=EVIL)]),
    )
    found = Page(page.render(evil))
    assert [tag for tag, _ in found.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in found.elements}
    data, script = found.texts["script"]
    assert json.loads(data)["sentences"][0]["tgt"] == [EVIL]
    assert "alert" not in script
    assert EVIL in found.texts["h1"]
    assert EVIL in found.texts["title"]  # that of the drawing
    assert EVIL in [text.strip() for text in found.texts["th"]]
    assert found.texts["dd"].count(EVIL) == 2  # source and reference


def test_control_characters_are_shown(made: ReportContent):
    """A browser takes them for errors, ends a line of script at U+2028, and turns text around at U+202E."""
    text = "\x00\x01\x1b[31m\x9b\u2028\u202e\ud800</script>"
    shown = r"\x00\x01\x1b[31m\u009b\u2028\u202e\ud800</script>"
    sentence = replace(made.sentences[0], src=text, ref=text)
    attended = replace(made.viewer.sentences[1], tgt=[text])
    drawing = replace(made.sections[0].drawings[0], title=text, svg=to_svg(Figure(), "hostile", text, text))
    hostile = replace(
        made,
        title=text,
        unknown=[text],
        sentences=[sentence],
        viewer=replace(made.viewer, sentences=[attended]),
        sections=[replace(made.sections[0], notes=[text], drawings=[drawing])],
        methods=replace(made.methods, config=f"{text}\n\tnext"),
    )
    written = page.render(hostile)
    assert not any(map(obeyed, written.replace("\t", " ").split("\n")))
    written.encode()
    found = Page(written)
    assert found.texts["h1"] == [shown]
    assert found.texts["dd"].count(shown) == 2
    assert f"{shown}\n\tnext" in found.texts["code"]
    assert found.texts["desc"][0] == shown
    assert json.loads(found.texts["script"][0])["sentences"][0]["tgt"] == [text]


def test_a_drawing_with_control_characters_in_its_labels_is_valid(tmp_path: Path):
    figure = bar_plot({"speed": {"a\x01\x1b[1m\uffff": Bar(1.5, 1.0, 2.0), "b": Bar(3.0, 3.0, 3.0)}})
    assert r"a\x01\x1b[1m\uffff" in " ".join(Page(to_svg(figure, "hostile", "t", "d")).texts["text"])
    svg, png = save_figure(figure, tmp_path / "bars", ("svg", "png"))
    assert r"a\x01\x1b[1m\uffff" in "".join(Tree.parse(svg).getroot().itertext())
    assert png.stat().st_size > 1000


def test_a_hostile_row_is_shown(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(significance, "TRIALS", 400)
    folder = write_experiment(tmp_path / "made", labels=["lstm", "rnn"], sentences=8)
    change_result(folder, "lstm-seed1", device=f"{EVIL}\x1b[2J")
    change_result(folder, "rnn-seed2", status="failed", reason=f"{EVIL}\u202e\x01")
    text = build_report(folder).read_text(encoding="utf-8")
    found = Page(text)
    assert not any(map(obeyed, text.replace("\t", " ").split("\n")))
    assert f"rnn, seed 2: failed ({EVIL}\\u202e\\x01)" in found.texts["li"]
    assert any(f"{EVIL}\\x1b[2J" in each for each in found.texts["dd"])
    assert "img" not in {tag for tag, _ in found.elements}


def test_drawings_speak_and_take_the_colours_of_the_page(made: ReportContent, shown: Page):
    drawings = [drawing for section in made.sections for drawing in section.drawings]
    assert len(drawings) == 10
    for drawing in drawings:
        found = Page(drawing.svg)
        assert found.elements[0][1]["role"] == "img"
        assert found.texts["title"] == [drawing.title]
        assert found.texts["desc"] == [drawing.description]
        assert drawing.description
        assert not re.search("#000000|#ffffff|font-family|width=.?[0-9.]+pt", drawing.svg)
        assert "style" not in found.texts
        assert "xlink" not in drawing.svg
        used = {*re.findall(r"#([\w-]+)", " ".join([*found.values("href"), *found.values("clip-path")]))}
        assert set(found.values("id")) == used | {
            f"{drawing.name}-{part}" for part in ("title", "desc", "figure")
        }
        assert "transformer" in drawing.svg
    windows = [panel for drawing in drawings for panel in drawing.panels]
    assert sum(tag == "svg" for tag, _ in shown.elements) == len(drawings) + len(windows)


def test_each_panel_of_a_drawing_has_a_window_of_its_own(made: ReportContent):
    """A narrow page shows the windows: they lie in the drawing, side by side, and the legend in pieces."""
    (speed,) = (each for part in made.sections for each in part.drawings if each.name == "speed-bars")
    boxes = [list(map(float, re.search('viewBox="([^"]*)"', panel)[1].split())) for panel in speed.panels]
    width, height = map(float, re.search('viewBox="0 0 ([0-9.]+) ([0-9.]+)"', speed.svg).groups())
    assert len(boxes) == 3
    for x, y, wide, high in boxes:
        assert -5 <= x < x + wide <= width + 5
        assert -5 <= y < y + high <= height + 5
    assert all(one[0] + one[2] <= other[0] + 12 for one, other in pairwise(boxes))
    assert speed.svg.count(">transformer<") == 3  # each panel names its bars
    curves = made.sections[0].drawings[0]
    assert [re.search('class="([a-z]+)"', panel)[1] for panel in curves.panels] == [
        *["panel"] * 2,
        *["entry"] * 3,
    ]
    assert {*re.findall('href="#([^"]*)"', "".join(curves.panels))} == {"learning-figure"}


def test_a_single_panel_is_drawn_again_for_a_narrow_page(made: ReportContent):
    """Its letters keep their size, and its windows show the narrow drawing."""
    pareto = made.sections[2].drawings[0]
    narrow, panel, *entries = pareto.panels
    widths = [float(re.search('viewBox="0 0 ([0-9.]+) ', svg)[1]) for svg in (pareto.svg, narrow)]
    assert widths == [2 * 72 * PANEL_INCHES[0], 72 * PANEL_INCHES[0]]
    left, _, width, _ = map(float, re.search('viewBox="([^"]*)"', panel)[1].split())
    assert -5 <= left < left + width <= widths[1] + 5
    assert len(entries) == 3
    assert {*re.findall('href="#([^"]*)"', "".join([panel, *entries]))} == {f"{pareto.name}-narrow-figure"}
    assert not set(Page(pareto.svg).values("id")) & set(Page(narrow).values("id"))


def test_two_drawings_of_one_figure_share_no_id():
    figure = bar_plot({"speed": {"a $x$ & <b>": Bar(1.5, 1.0, 2.0), "b": None, "c": Bar(3.0, 3.0, 3.0)}})
    one, other = (Page(to_svg(figure, name, "t", "d")) for name in ("one", "other"))
    assert one.values("id")
    assert not set(one.values("id")) & set(other.values("id"))
    assert [value.replace("one-", "other-") for value in one.values("href")] == other.values("href")
    assert any("a $x$ & <b>" in text for text in one.texts["text"])  # no formula, no markup


def test_marks_tell_more_than_colour(made: ReportContent, shown: Page):
    pieces = [p for each in made.sentences for output in each.outputs for p in output.pieces]
    extra, missing = ([p.text for p in pieces if p.kind == kind] for kind in ("extra", "missing"))
    assert extra
    assert missing
    assert shown.texts["ins"][1:] == extra  # the first explains the mark
    assert shown.texts["del"][1:] == missing


def test_the_same_folder_gives_the_same_page(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(significance, "TRIALS", 400)
    folder = write_experiment(tmp_path / "made", labels=["lstm", "rnn"], sentences=8)
    path = build_report(folder)
    first = path.read_bytes()
    assert path == folder / "report.html"
    assert build_report(folder).read_bytes() == first


def test_what_was_not_compared_is_not_marked(made: ReportContent):
    bare = replace(
        made,
        results=replace(made.results, reference=""),
        significance=significance.significance([], ["lstm"]),
        sentences=[],
        viewer=content.AttentionViewer(models=[], sentences=[]),
        unknown=[],
    )
    found = Page(page.render(bare))
    assert {"viewer", "filter"} & set(found.values("id")) == set()
    assert "No two models share a seed: nothing is compared." in found.texts["p"]
    assert [tag for tag, _ in found.elements].count("script") == 1
