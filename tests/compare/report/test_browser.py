"""The page in a browser: what its script does, on a desk and on a phone."""

import csv
import time
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from compare.report.html import page, results
from tests.kits.browser import find, needs_browser, open_browser, resize, serious_findings
from tests.kits.report import read

pytestmark = [needs_browser, pytest.mark.slow]


def test_the_page_works(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sorting, unfolding, the viewer, the filter, a download; nothing serious for a screen reader."""
    monkeypatch.setattr(results, "TRIALS", 400)
    path = tmp_path / "report.html"
    path.write_text(page.render(read(made)), encoding="utf-8")
    with open_browser(tmp_path) as browser:
        resize(browser, 1280)
        browser.get(path.as_uri())
        (head,) = (each for each in find(browser, "#results thead th") if each.text[:6] in ("BLEU", "BLEU ↕"))
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
        while not (written := tmp_path / "results-by-model.csv").exists():
            time.sleep(0.1)
        models = [row[0] for row in csv.reader(written.read_text(encoding="utf-8").splitlines())]
        assert models == ["model", "transformer", "transformer, seed 1", "transformer, seed 2", "rnn", "lstm"]
        assert serious_findings(browser) == []
        resize(browser, 390)
        browser.execute_script(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        assert browser.execute_script("return document.documentElement.scrollWidth") == 390
        assert find(browser, "#learning-curves .stack .panel")[0].is_displayed()
        assert serious_findings(browser) == []
        assert browser.get_log("browser") == []
