"""Debian's Chromium for tests of pages; a module that uses it is skipped where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium")

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

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
    """What axe-core finds in the page, each as the name of the rule and the elements."""
    pytest.importorskip("axe_core_python")
    script = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": script})  # past the page's own policy
    run = "axe.run({ resultTypes: ['violations'] })"
    options = {"expression": run, "awaitPromise": True, "returnByValue": True}
    found: dict[str, Any] = browser.execute_cdp_cmd("Runtime.evaluate", options)["result"]["value"]
    assert found["testEngine"]["name"] == "axe-core"
    return [
        f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]
