"""The page as a reader uses it, in Debian's Chromium; skipped with a word where there is none."""

import csv
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from compare.report.html import page
from compare.report.html import results as significance
from compare.report.html.page import ReportContent
from tests.kits.report import read, write_experiment

pytest.importorskip("selenium")

from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from tests.kits.browser import find, needs_browser, open_browser, resize, serious_findings

pytestmark = [needs_browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ReportContent:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "TRIALS", 400)
        return read(write_experiment(tmp_path_factory.mktemp("report") / "made"))


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Chrome]:
    with open_browser(downloads) as driver:
        yield driver


@pytest.fixture(scope="module")
def place(made: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(made), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Chrome, place: Path) -> Iterator[Chrome]:
    """The page at the width of a desk, fresh; whatever a test does there, the console must stay empty."""
    resize(browser, 1280)
    browser.get(place.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def labels(browser: Chrome) -> list[str]:
    return [name.text.strip("▸▾ \xa0") for name in find(browser, "#results .model th")]


def test_a_column_sorts_both_ways_by_mouse_and_keyboard(opened: Chrome):
    (head,) = (
        th for th in find(opened, "#results thead th") if th.text.startswith("BLEU") and "_" not in th.text
    )
    assert labels(opened) == ["lstm", "rnn", "transformer"]
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert labels(opened) == ["transformer", "rnn", "lstm"]
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert labels(opened) == ["lstm", "rnn", "transformer"]
    names = find(opened, "#results thead th")[0]
    for order, found in (("ascending", ["lstm", "rnn"]), ("descending", ["transformer", "rnn"])):
        names.find_element(By.TAG_NAME, "button").click()
        assert names.get_attribute("aria-sort") == order
        assert labels(opened)[:2] == found
    assert head.get_attribute("aria-sort") is None
    (against,) = (th for th in find(opened, "#results thead th") if th.text.startswith("against"))
    against.find_element(By.TAG_NAME, "button").click()  # differences below 0
    assert labels(opened) == ["transformer", "rnn", "lstm"]


def test_runs_unfold_below_their_model_and_move_with_it(opened: Chrome):
    runs = find(opened, "#results .run")
    assert not any(run.is_displayed() for run in runs)
    button = find(opened, "#results .fold")[1]
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert [run.is_displayed() for run in runs] == [False, False, True, True, False, False]
    find(opened, "#results thead button")[1].click()
    rows = [row for row in find(opened, "#results tbody tr") if row.is_displayed()]
    assert [row.find_element(By.TAG_NAME, "th").text.strip("▸▾ \xa0") for row in rows] == [
        "transformer",
        "rnn",
        "seed 1",
        "seed 2",
        "lstm",
    ]


def test_the_viewer_shows_the_picked_sentence_and_its_weights(opened: Chrome, made: ReportContent):
    pick = Select(find(opened, ".pick")[0])
    assert [option.text for option in pick.options] == ["3: red dog", "7: tree"]
    maps = find(opened, ".map")
    assert [len(find(each, "tbody td")) for each in maps] == [0, 6, 6]
    assert "has no attention" in maps[0].text
    assert len(find(maps[1], "td.gold")) == 2
    cell = find(maps[1], "tbody td")[0]
    ActionChains(opened).move_to_element(cell).perform()
    tip = opened.find_element(By.ID, "tip")
    assert tip.text == "rot ← red: 0.97, gold link"
    read = [each.get_attribute("aria-label") for each in find(maps[1], "tbody td")]
    assert read[1:5] == [
        "rot ← dog: 0.03",
        "Hund ← red: 0.04",
        "Hund ← dog: 0.96, gold link",
        "! ← red: 0.50",
    ]
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    assert not tip.is_displayed()
    find(opened, ".next")[0].click()
    assert pick.first_selected_option.text == "7: tree"
    assert [len(find(each, "tbody td")) for each in find(opened, ".map")] == [0, 1, 1]
    find(opened, ".next")[0].click()
    assert pick.first_selected_option.text == "3: red dog"


def test_weights_are_read_by_keyboard_too(opened: Chrome):
    cells = find(find(opened, ".map")[1], "tbody td")
    assert [cell.get_attribute("tabindex") for cell in cells] == ["0", *["-1"] * 5]
    cells[0].send_keys(Keys.ARROW_DOWN)
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    tip = opened.find_element(By.ID, "tip")
    assert tip.is_displayed()
    assert tip.text == "Hund ← dog: 0.96, gold link"
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)  # past the end nothing happens
    assert tip.text == "Hund ← dog: 0.96, gold link"
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert tip.text == "! ← dog: 0.50"


def test_a_head_is_chosen_for_all_sentences(opened: Chrome):
    (select,) = (Select(found) for found in find(opened, ".map select"))
    assert select.first_selected_option.text == "cross.0 mean"
    last = ".maps .map:last-child tbody td"
    assert find(opened, last)[0].get_attribute("aria-label").endswith("0.60, gold link")
    select.select_by_visible_text("cross.0 head 0")
    assert find(opened, last)[0].get_attribute("aria-label").endswith("1.00, gold link")
    find(opened, ".next")[0].click()
    assert find(opened, last)[0].get_attribute("aria-label") == "Baum ← tree: 0.11"


def test_sentences_are_filtered_by_length_and_text(opened: Chrome, made: ReportContent):
    def shown() -> int:
        return sum(each.is_displayed() for each in find(opened, ".sentence"))

    form = opened.find_element(By.ID, "filter")
    assert shown() == len(made.sentences) == 40
    form.find_element(By.NAME, "from").send_keys("4")
    form.find_element(By.NAME, "to").send_keys("5")
    within = [each for each in made.sentences if 4 <= each.words <= 5]
    assert 0 < shown() == len(within) < 40
    assert form.find_element(By.TAG_NAME, "output").text == f"{len(within)} of 40 shown"
    text = form.find_element(By.NAME, "text")
    text.send_keys("HUND")
    assert 0 < shown() == sum("Hund" in str(asdict(each)) for each in within) < len(within)
    opened.execute_script("window.sameAsBefore = true")
    text.send_keys(" no such words", Keys.ENTER)
    assert shown() == 0
    assert opened.execute_script("return window.sameAsBefore")  # nothing was sent away


def test_one_drawing_of_a_choice_is_seen_at_a_time(opened: Chrome):
    drawings = find(opened, "#time-to-quality .drawing")
    assert [each.is_displayed() for each in drawings] == [True, False, False]
    Select(find(opened, "#time-to-quality select")[0]).select_by_visible_text("flops")
    assert [each.is_displayed() for each in drawings] == [False, False, True]


def test_the_theme_is_the_systems_until_one_is_chosen(opened: Chrome):
    def paper() -> str:
        return str(find(opened, "body")[0].value_of_css_property("background-color"))

    def prefer(scheme: str) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    prefer("dark")
    dark = paper()
    prefer("light")
    light = paper()
    assert dark != light
    button = opened.find_element(By.ID, "theme")
    for name, colour in (("light", light), ("dark", dark), ("as the system", light)):
        button.click()
        assert button.text == f"Theme: {name}"
        assert paper() == colour
    ink = find(opened, "svg text")[0].value_of_css_property("fill")
    button.click()
    button.click()
    assert find(opened, "svg text")[0].value_of_css_property("fill") != ink
    button.click()


def test_on_a_phone_only_boxes_scroll_sideways(opened: Chrome, tmp_path: Path):
    resize(opened, 360)
    for details in find(opened, "details"):
        opened.execute_script("arguments[0].open = true", details)
    assert opened.execute_script("return document.documentElement.scrollWidth") == 360
    wide = "return [...document.querySelectorAll('.box')].some(box => box.scrollWidth > box.clientWidth)"
    assert opened.execute_script(wide)


def test_the_first_tab_skips_to_the_results(opened: Chrome):
    ActionChains(opened).send_keys(Keys.TAB).perform()
    skip = opened.switch_to.active_element
    assert skip.get_attribute("href").endswith("#main")
    assert skip.is_displayed()
    assert skip.rect["x"] >= 0


def unfold_all(browser: Chrome) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def test_a_screen_reader_finds_nothing_serious(opened: Chrome):
    for width in (1280, 390):
        resize(opened, width)
        assert serious_findings(opened) == []
        unfold_all(opened)
        assert serious_findings(opened) == []


def test_tables_fit_a_desk_and_other_columns_can_be_chosen(opened: Chrome):
    unfold_all(opened)
    too_wide = """return [...document.querySelectorAll("figure.table:not(.hashes) .box")]
        .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"""
    assert opened.execute_script(too_wide) == []
    heads = [head for head in find(opened, "#results thead th") if head.is_displayed()]
    shown = [head.text.rstrip("↕ \xa0") for head in heads]
    assert {"model", "BLEU", "length ratio", "still improving"} < set(shown)
    assert "brevity penalty" not in shown
    tools = find(opened, "#results .tools")[0]
    summary = find(tools, "summary")[0]
    number = len(find(opened, "#results thead th"))
    assert summary.text.endswith(f"Columns: {len(shown)} of {number}")
    (penalty,) = (label for label in find(tools, "label") if label.text == "brevity penalty")
    penalty.click()
    assert summary.text.endswith(f"Columns: {len(shown) + 1} of {number}")
    assert any(
        head.is_displayed() and "brevity penalty" in head.text for head in find(opened, "#results thead th")
    )
    find(tools, ".columns button")[0].send_keys(Keys.ENTER)
    assert all(head.is_displayed() for head in find(opened, "#results thead th"))


def downloaded(folder: Path, name: str) -> str:
    """The text of a file once the browser has written it."""
    for _ in range(100):
        if (folder / name).exists():
            return (folder / name).read_text(encoding="utf-8")
        time.sleep(0.1)
    raise AssertionError(f"no {name} among {[path.name for path in folder.iterdir()]}")


def test_what_a_table_shows_is_downloaded(opened: Chrome, downloads: Path, made: ReportContent):
    places = [place for place, head in enumerate(made.results.heads) if not head.optional]
    heads = ["model", *(made.results.heads[place].text for place in places)]
    find(opened, "#results .fold")[1].click()
    csv_button, latex_button = find(opened, "#results .tools > button")
    csv_button.click()
    rows = list(csv.reader(downloaded(downloads, "results-by-model.csv").splitlines()))
    assert rows[0] == heads
    assert [row[0] for row in rows[1:]] == ["lstm", "rnn", "rnn, seed 1", "rnn, seed 2", "transformer"]
    params = heads.index("params (M)")
    assert [row[params] for row in rows[1:]] == ["1.00", "2.00", "2.00", "2.00", "3.00"]
    speed = heads.index("train tokens/s")
    first = made.results.rows[0].cells[places[speed - 1]].text
    assert rows[1][speed] in (first, first.replace(",", ""))
    latex_button.click()
    latex = downloaded(downloads, "results-by-model.tex")
    assert latex.count(r" \\") == 6
    assert (
        latex.splitlines()[1]
        == r"\begin{tabular}{l"
        + "".join("r" if made.results.heads[place].numeric else "l" for place in places)
        + "}"
    )
    assert r"$\pm$" in latex
    assert "±" not in latex
    assert len(find(opened, "figure.table")) == len(find(opened, "figure.table > .tools"))


def test_on_a_phone_panels_stand_below_each_other(opened: Chrome):
    wide = "#learning-curves .box > svg"
    assert find(opened, wide)[0].rect["width"] > 500
    panels = find(opened, "#learning-curves .stack .panel")
    assert not panels[0].is_displayed()
    resize(opened, 390)
    assert find(opened, wide)[0].rect["width"] <= 1
    first, second = (panel.rect for panel in panels)
    assert second["y"] >= first["y"] + first["height"]
    assert 0 <= first["x"] < first["x"] + first["width"] <= 390
    (box,) = find(opened, "#learning-curves .box")
    assert box.get_property("scrollWidth") == box.get_property("clientWidth")
    names = len(find(opened, "#results .model"))
    assert len(find(opened, "#learning-curves .stack .entry")) == names


def test_on_a_phone_no_figure_scrolls_and_all_letters_can_be_read(opened: Chrome):
    resize(opened, 390)
    script = """return [...document.querySelectorAll("figure.drawing")]
        .filter((each) => each.checkVisibility())
        .map((figure) => {
            const box = figure.querySelector(".box");
            const [source] = [...figure.querySelectorAll("svg[role=img]")].slice(-1);
            const panel = figure.querySelector(".panel");
            const size = parseFloat(getComputedStyle(source.querySelector("text")).fontSize);
            const scale = panel.clientWidth / panel.viewBox.baseVal.width;
            return [box.ariaLabel, box.scrollWidth - box.clientWidth, size * scale];
        })"""
    figures = opened.execute_script(script)
    assert any("decoding speed" in title for title, *_ in figures)  # a single panel
    for title, hidden, letters in figures:
        assert hidden <= 0, title
        assert letters >= 7, title


def test_paper_has_the_figures_without_the_controls(opened: Chrome):
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not any(each.is_displayed() for each in find(opened, ".tools, .controls, nav, #theme"))
    assert all(each.is_displayed() for each in find(opened, "#learning-curves .box > svg, #results table"))
    assert not any(each.is_displayed() for each in find(opened, ".stack"))
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
