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

from compare.attention.viewer import AttentionViewer
from compare.report.html import build_report, page, results
from compare.report.html.page import ReportContent
from compare.report.html.parts import to_svg
from compare.report.html.sentences import differences
from compare.report.plots import PANEL_INCHES, Bar, bar_plot, save_figure
from tests.kits.hostile import obeyed
from tests.kits.report import change_result, read, write_experiment

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"&'<!--"
CONTROL = "\x00\x01\x1b[31m\x9b\u2028\u202e\ud800</script>"
"""A browser takes them for errors, ends a line of script at U+2028, and turns text around at U+202E."""
CONTROL_SHOWN = r"\x00\x01\x1b[31m\u009b\u2028\u202e\ud800</script>"


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
def content(made: Path) -> ReportContent:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "TRIALS", 400)
        return read(made)


@pytest.fixture(scope="module")
def shown(content: ReportContent) -> Page:
    return Page(page.render(content))


def test_it_is_one_file_that_runs_no_foreign_script(shown: Page):
    assert all(href.startswith("#") for href in shown.values("href"))
    assert shown.values("src") == shown.values("srcset") == []
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in shown.elements}
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", shown.texts["style"][0])
    policy = dict(shown.elements[4][1])["content"]
    digest = hashlib.sha256(shown.texts["script"][-1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]


def test_ids_differ_references_are_found_and_headings_leave_out_no_level(shown: Page):
    ids = shown.values("id")
    assert len(set(ids)) == len(ids)
    inner = [href[1:] for href in shown.values("href")]
    labels = [name for names in shown.values("aria-labelledby") for name in names.split()]
    clips = [found for value in shown.values("clip-path") for found in re.findall(r"url\(#([^)]+)\)", value)]
    assert min(len(inner), len(labels), len(clips)) > 10
    assert {*inner, *labels, *clips} <= set(ids)
    levels = [int(tag[1]) for tag, _ in shown.elements if re.fullmatch(r"h\d", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_rows_columns_and_marks_are_those_of_the_content(shown: Page, content: ReportContent):
    heads = [attributes for tag, attributes in shown.elements if tag == "th"][
        : 1 + len(content.results.columns)
    ]
    optional = [heading in content.results.optional for heading in content.results.headings]
    assert ["data-optional" in attributes for attributes in heads[1:]] == optional
    assert "num" in heads[1]["class"]
    rows = [attributes.get("class") for tag, attributes in shown.elements if tag == "tr"]
    assert [row for row in rows if row] == ["model", "run", "run"] * 3
    runs = [run for row in content.results.rows for run in row["runs"]]
    scores = {str(content.results.columns[0].order(run)) for run in runs}
    assert scores <= set(shown.values("data-order"))
    pieces = [p for each in content.sentences for output in each.outputs for p in output.pieces]
    extra, missing = ([p.text for p in pieces if p.kind == kind] for kind in ("extra", "missing"))
    assert shown.texts["ins"][1:] == extra != []  # the first explains the mark
    assert shown.texts["del"][1:] == missing != []


def test_what_was_not_compared_is_not_marked(content: ReportContent):
    bare = replace(
        content,
        reference="",
        significance=results.significance([], ["lstm"]),
        sentences=[],
        viewer=AttentionViewer(models=[], sentences=[]),
        unknown=[],
    )
    found = Page(page.render(bare))
    assert {"viewer", "filter"} & set(found.values("id")) == set()
    assert "No two models share a seed: nothing is compared." in found.texts["p"]
    assert [tag for tag, _ in found.elements].count("script") == 1


@pytest.mark.parametrize(("text", "as_shown"), [(EVIL, EVIL), (CONTROL, CONTROL_SHOWN)])
def test_text_of_data_stays_text(content: ReportContent, text: str, as_shown: str):
    sentence = content.sentences[0]
    output = replace(sentence.outputs[0], model=text, pieces=differences(text, "ja"))
    drawing = replace(content.sections[0].drawings[0], title=text, svg=to_svg(Figure(), "evil", text, text))
    row, attended = content.results.rows[0] | {"label": text}, content.viewer.sentences[1]
    changed = replace(
        content,
        title=text,
        summary=[text],
        unknown=[text],
        sentences=[replace(sentence, src=text, ref=text, outputs=[output])],
        viewer=replace(content.viewer, sentences=[replace(attended, tgt=[text])]),
        sections=[replace(content.sections[0], notes=[text], drawings=[drawing])],
        results=replace(content.results, rows=[row]),
        methods=content.methods._replace(config=f"{text}\n\tnext"),
    )
    shown = page.render(changed)
    shown.encode()
    assert not any(map(obeyed, shown.replace("\t", " ").split("\n")))
    found = Page(shown)
    assert [tag for tag, _ in found.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in found.elements}
    data, script = found.texts["script"]
    assert json.loads(data)["sentences"][0]["tgt"] == [text]
    assert "alert" not in script
    assert found.texts["h1"] == [as_shown]
    assert as_shown in found.texts["title"]  # that of the drawing
    assert as_shown in [each.strip() for each in found.texts["th"]]
    assert found.texts["dd"].count(as_shown) == 2  # source and reference
    assert f"{as_shown}\n\tnext" in found.texts["code"]
    assert found.texts["desc"][0] == as_shown


def test_hostile_rows_are_shown_and_the_same_folder_gives_the_same_page(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(results, "TRIALS", 400)
    folder = write_experiment(tmp_path / "made", labels=["lstm", "rnn"], sentences=8)
    change_result(folder, "lstm-seed1", device=f"{EVIL}\x1b[2J")
    change_result(folder, "rnn-seed2", status="failed", reason=f"{EVIL}\u202e\x01")
    path = build_report(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    found = Page(text)
    assert not any(map(obeyed, text.replace("\t", " ").split("\n")))
    assert f"rnn, seed 2: failed ({EVIL}\\u202e\\x01)" in found.texts["li"]
    assert any(f"{EVIL}\\x1b[2J" in each for each in found.texts["dd"])
    assert "img" not in {tag for tag, _ in found.elements}
    assert build_report(folder).read_text(encoding="utf-8") == text


# Drawings.


def test_a_label_of_a_drawing_is_text(tmp_path: Path):
    labels = {"a\x01\x1b[1m\uffff": Bar(1.5, 1.0, 2.0), "a $x$ & <b>": None, "c": Bar(3.0, 3.0, 3.0)}
    figure = bar_plot({"speed": labels})
    one, other = (Page(to_svg(figure, name, "t", "d")) for name in ("one", "other"))
    assert r"a\x01\x1b[1m\uffff" in " ".join(one.texts["text"])
    assert any("a $x$ & <b>" in text for text in one.texts["text"])  # no formula, no markup
    assert one.values("id")
    assert not set(one.values("id")) & set(other.values("id"))
    assert [value.replace("one-", "other-") for value in one.values("href")] == other.values("href")
    svg, png = save_figure(figure, tmp_path / "bars", ("svg", "png"))
    assert r"a\x01\x1b[1m\uffff" in "".join(Tree.parse(svg).getroot().itertext())
    assert png.stat().st_size > 1000


def test_drawings_speak_and_take_the_colours_of_the_page(content: ReportContent, shown: Page):
    drawings = [drawing for section in content.sections for drawing in section.drawings]
    assert len(drawings) == 10
    for drawing in drawings:
        found = Page(drawing.svg)
        assert found.elements[0][1]["role"] == "img"
        assert found.texts["title"] == [drawing.title]
        assert found.texts["desc"] == [drawing.description] != [""]
        assert not re.search("#000000|#ffffff|font-family|width=.?[0-9.]+pt", drawing.svg)
        assert "style" not in found.texts
        assert "transformer" in drawing.svg
    windows = [panel for drawing in drawings for panel in drawing.panels]
    assert sum(tag == "svg" for tag, _ in shown.elements) == len(drawings) + len(windows)


def view_boxes(panels: list[str]) -> list[list[float]]:
    return [list(map(float, re.search('viewBox="([^"]*)"', panel)[1].split())) for panel in panels]


def test_a_narrow_page_has_a_window_for_each_panel_and_each_name(content: ReportContent):
    """Windows lie in the drawing, side by side; one with a single panel is drawn again, larger."""
    (speed,) = (each for part in content.sections for each in part.drawings if each.name == "speed-bars")
    ((_, _, width, height),) = view_boxes([speed.svg])
    boxes = view_boxes(speed.panels)
    assert len(boxes) == 3
    for x, y, wide, high in boxes:
        assert -5 <= x < x + wide <= width + 5
        assert -5 <= y < y + high <= height + 5
    assert all(one[0] + one[2] <= other[0] + 12 for one, other in pairwise(boxes))
    assert speed.svg.count(">transformer<") == 3  # each panel names its bars
    curves, pareto = content.sections[0].drawings[0], content.sections[2].drawings[0]
    kinds = [re.search('class="([a-z]+)"', panel)[1] for panel in curves.panels]
    assert kinds == ["panel", "panel", "entry", "entry", "entry"]
    assert {*re.findall('href="#([^"]*)"', "".join(curves.panels))} == {"learning-figure"}
    narrow, *windows = pareto.panels
    widths = [width for _, _, width, _ in view_boxes([pareto.svg, narrow])]
    assert widths == [2 * 72 * PANEL_INCHES[0], 72 * PANEL_INCHES[0]]
    assert {*re.findall('href="#([^"]*)"', "".join(windows))} == {f"{pareto.name}-narrow-figure"}
    assert len(windows) == 4
