"""The page in a browser: what its script does, on a desk and on a phone."""

import csv
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("selenium")

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from compare import export_page, load_model
from compare.attention.weights import SentenceAttention, render_viewer
from compare.report.html import page
from compare.report.html.page import gather_content
from tests.kits.common import ROOT
from tests.kits.experiments import VIEWER

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its chromedriver here")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SERIOUS = ("serious", "critical")
"""Impacts of findings of axe-core that no page may have."""


@contextmanager
def open_browser(folder: Path) -> Iterator[Chrome]:
    """A browser without a window, whose profile and downloads are in ``folder``."""
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    downloads = {"behavior": "allow", "downloadPath": str(folder)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    try:
        yield driver
    finally:
        driver.quit()


def resize(browser: Chrome, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def find(within: Chrome | WebElement, css: str) -> list[WebElement]:
    return within.find_elements(By.CSS_SELECTOR, css)


def serious_findings(browser: Chrome) -> list[str]:
    """Return violations that axe-core reports, by name of the rule and elements."""
    pytest.importorskip("axe_core_python")
    script = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": script})  # past the page's own policy
    run = "axe.run({ resultTypes: ['violations'] })"
    options = {"expression": run, "awaitPromise": True, "returnByValue": True}
    result: dict[str, Any] = browser.execute_cdp_cmd("Runtime.evaluate", options)["result"]["value"]
    assert result["testEngine"]["name"] == "axe-core"
    return [
        f"{violation['id']}: {[node['html'][:200] for node in violation['nodes']]}"
        for violation in result["violations"]
        if violation["impact"] in SERIOUS
    ]


pytestmark = [needs_browser, pytest.mark.slow]


def test_the_page_works(made: Path, tmp_path: Path):
    """Sorting, unfolding, the viewer, the filter, a download; nothing serious for a screen reader."""
    path = tmp_path / "report.html"
    path.write_text(page.render(replace(gather_content(made), viewer=VIEWER)), encoding="utf-8")
    with open_browser(tmp_path) as browser:
        resize(browser, 1280)
        browser.get(path.as_uri())
        (head,) = (
            element
            for element in find(browser, "#results thead th")
            if element.text[:6] in ("BLEU", "BLEU ↕")
        )
        head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert head.get_attribute("aria-sort") == "descending"
        assert "transformer" in find(browser, "#results .model th")[0].text
        assert not find(browser, "#results .run")[0].is_displayed()
        find(browser, "#results .fold")[0].click()
        assert find(browser, "#results .run")[0].is_displayed()
        assert Select(find(browser, ".pick")[0]).first_selected_option.text == "3: red dog"
        cells = find(find(browser, ".map")[1], "tbody td")
        ActionChains(browser).move_to_element(cells[0]).perform()
        assert browser.find_element(By.ID, "tip").text == "rot ← red: 0.97, gold link"
        cells[0].send_keys(Keys.ARROW_DOWN)
        assert browser.find_element(By.ID, "tip").text == "Hund ← red: 0.04"
        form = browser.find_element(By.ID, "filter")
        form.find_element(By.NAME, "text").send_keys("no such words", Keys.ENTER)
        assert form.find_element(By.TAG_NAME, "output").text == "0 of 40 shown"
        find(browser, "#results .tools > button")[0].click()
        written = tmp_path / "results-by-model.csv"
        WebDriverWait(browser, 30).until(lambda _: written.exists())
        models = [row[0] for row in csv.reader(written.read_text(encoding="utf-8").splitlines())]
        best = ["transformer", "transformer, seed 1", "transformer, seed 2"]
        assert models == ["model", *best, "rnn", "nearest-neighbour", "lstm"]
        assert serious_findings(browser) == []
        resize(browser, 390)
        browser.execute_script(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        assert browser.execute_script("return document.documentElement.scrollWidth") == 390
        assert serious_findings(browser) == []
        assert browser.get_log("browser") == []


def test_a_projector_shows_one_map_in_the_window(tmp_path: Path):
    """Its letters are 20 pixels high or more, the first map is in view; on a phone the page has a margin."""
    path = tmp_path / "viewer.html"
    attention = SentenceAttention(
        **{"source": "red dog", "translation": "rot Hund", "label": "rnn", "details": "BLEU 38.2"},
        **{"src": ["red", "dog"], "tgt": ["rot", "Hund", "<eos>"], "kinds": ("words", "words")},
        weights={"cross": np.full((2, 3, 2), 0.5)},
    )
    path.write_text(render_viewer("red dog", [attention]), encoding="utf-8")
    with open_browser(tmp_path) as browser:
        resize(browser, 1280)
        browser.get(path.as_uri())
        table = find(browser, ".map table")[0]
        small = table.rect
        find(browser, "#projector")[0].click()
        assert small["width"] < 200 < 1200 < table.rect["width"] <= 1280
        bottom = browser.execute_script("return arguments[0].getBoundingClientRect().bottom", table)
        assert bottom < browser.execute_script("return window.innerHeight")
        sizes = [cell.value_of_css_property("font-size").removesuffix("px") for cell in find(table, "th")]
        assert all(float(size) >= 20 for size in sizes)
        assert serious_findings(browser) == []
        find(browser, "#projector")[0].click()
        assert table.rect == small
        resize(browser, 400)
        assert table.rect["x"] >= 8
        assert browser.execute_script("return document.documentElement.scrollWidth") == 400
        assert browser.get_log("browser") == []


def test_the_live_page_translates_what_is_typed(tmp_path: Path):
    """Three sentences, bad ones, a changed formula, linked words; a desk, a phone, dark; nothing serious."""
    runs = [ROOT / "results" / "demo" / f"{name}-seed1" for name in ("lstm", "bahdanau", "transformer")]
    path = export_page(runs, tmp_path / "live.html", precision="fp16", examples=["My dog slept."])
    models = [load_model(run) for run in runs]
    with open_browser(tmp_path) as browser:
        media = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        resize(browser, 1280)
        browser.get(path.as_uri())
        sentence, message = (browser.find_element(By.ID, name) for name in ("sentence", "message"))

        def typed(text: str) -> list[str]:
            sentence.clear()
            sentence.send_keys(text, Keys.ENTER)
            wait()
            return shown()

        def wait() -> None:
            panels = browser.find_element(By.ID, "panels")
            WebDriverWait(browser, 30).until(lambda _: panels.get_attribute("aria-busy") == "false")

        def shown() -> list[str]:
            return [element.text for element in find(browser, ".translation")]

        for text in (
            "My small girl opened the window.",
            "The old teacher must buy my lamp.",
            "I see the zebra.",
        ):
            assert typed(text) == [model.translate(text, beam_size=1) for model in models]
        assert message.text == (
            "Not in the vocabulary of lstm, bahdanau, transformer: I, zebra, read as <unk>."
        )
        typed("")
        assert message.text == "Type a sentence first."
        typed("word " * 500)
        assert message.text == "This text of 500 words is too long: at most 600 characters are translated."
        typed("The old teacher must buy my lamp.")
        assert message.text == ""
        bahdanau, transformer = find(browser, ".panel")[1:]
        target = find(bahdanau, "li[data-row]")[1]
        ActionChains(browser).move_to_element(find(bahdanau, "li[data-column]")[1]).perform()
        assert [element.text for element in find(browser, "li.marked")] == ["old"] * 3  # in all models
        ActionChains(browser).move_to_element(target).perform()
        assert find(bahdanau, ".after")[0].text == "Step 2: the five most probable"
        assert find(bahdanau, ".next li span")[0].text == target.text
        assert "e = v · tanh(W s + U h)" in find(bahdanau, ".formula")[0].text
        target.send_keys(Keys.ARROW_DOWN)
        assert find(bahdanau, ".after")[0].text == "Step 3: the five most probable"
        Select(find(transformer, "select")[0]).select_by_visible_text("layer 2, head 1")
        assert "e = q · k / √8" in find(transformer, ".formula")[0].text
        for name in ("unscaled", "hard"):
            browser.find_element(By.ID, name).click()
        wait()
        formula = find(transformer, ".formula")[0].text
        assert "a = 1 for the largest e" in formula
        assert "√" not in formula
        assert find(bahdanau, ".after")[0].text == "Step 3: the five most probable"  # the row stays
        assert len(find(bahdanau, "path")) == len(find(bahdanau, "li[data-row]"))
        Select(browser.find_element(By.ID, "form")).select_by_value("map")
        assert {element.get_attribute("style") for element in find(bahdanau, "td[data-row='0']")} == {
            "--weight: 0%;",
            "--weight: 100%;",
        }
        media["features"].append({"name": "prefers-color-scheme", "value": "dark"})
        for width in (1280, 400):
            resize(browser, width)
            for form in ("lines", "map"):
                Select(browser.find_element(By.ID, "form")).select_by_value(form)
                assert serious_findings(browser) == []
                assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        find(browser, "#projector")[0].click()
        assert float(find(bahdanau, "th")[0].value_of_css_property("font-size").removesuffix("px")) >= 20
        assert browser.get_log("browser") == []
