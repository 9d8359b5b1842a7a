"""The page of `attnbench demo`: its models, in a real browser, and without gradio."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compare.integrations.demo_page import DemoModels, collect_runs
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT

RUNS = ("luong-seed1", "transformer-seed1")


def test_a_model_shows_its_translation_and_its_attention(finished: Path):
    models = DemoModels(collect_runs([finished]))
    assert list(models.runs) == ["luong", "transformer"]
    translation, html = models.show("  red   dog\n", "luong")
    assert translation == models.load("luong").translate("red dog")
    assert models.load("luong") is models.load("luong")
    assert html.startswith("<iframe srcdoc=")
    assert all(word in html for word in ("red", "dog", "Attention to the source"))
    assert "&lt;h1&gt;" not in html  # the page around it has the sentence already
    assert models.show(" ", "luong") == ("Type a sentence.", "")


def test_a_mistake_is_shown_in_the_page(finished: Path, monkeypatch: pytest.MonkeyPatch):
    models = DemoModels(collect_runs([finished / RUNS[0]]))

    def fail(line: str) -> None:
        raise ValueError(f"{len(line)} tokens\nare too many")

    monkeypatch.setattr(models.load("luong"), "attend", fail)
    assert models.show("abc", "luong") == ("3 tokens are too many.", "")


def test_runs_are_named_so_that_they_differ(finished: Path, copy: Path, tmp_path: Path):
    shutil.copytree(copy, tmp_path / "a" / "copy")
    found = collect_runs([finished / RUNS[0], copy / RUNS[0]])
    assert list(found) == ["luong", f"{copy.name}/luong-seed1"]
    names = list(collect_runs([finished / RUNS[0], copy / RUNS[0], tmp_path / "a" / "copy" / RUNS[0]]))
    assert names == ["luong", "copy/luong-seed1", "a/copy/luong-seed1"]
    with pytest.raises(ValueError, match="is given twice"):
        collect_runs([finished, finished / RUNS[1]])


def test_without_gradio_the_command_says_what_to_install(
    finished: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert refusal("demo", finished) == (
        "attnbench demo needs gradio, which is not installed: pip install 'attnbench[demo]'"
    )


@pytest.fixture
def address(finished: Path) -> Iterator[str]:
    """The address of a page served by the command, which ends without an error at the end."""
    pytest.importorskip("gradio")
    command = [sys.executable, "-m", "compare", "demo", *(str(finished / run) for run in RUNS), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline()
            yield re.match(r"(http://127\.0\.0\.1:\d+/) shows the page", line)[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_a_typed_sentence_is_translated_by_two_models_side_by_side(address: str, tmp_path: Path):
    pytest.importorskip("selenium")
    from tests.kits.browser import DRIVER, find, open_browser, resize

    if not DRIVER:
        pytest.skip("no chromium with its chromedriver here")

    def wait_for(text: str) -> None:
        for _ in range(600):
            frames = [each.get_attribute("srcdoc") for each in find(browser, "iframe")]
            if len(frames) == 2 and all(text in frame for frame in frames):
                return
            time.sleep(0.1)
        raise AssertionError(f"no {text} in {frames}")

    with open_browser(tmp_path) as browser:
        resize(browser, 1280)
        browser.get(address)
        wait_for("eos")
        box = find(browser, "textarea")[0]
        box.clear()
        box.send_keys("small cat \n")
        wait_for("small")
        frames = find(browser, "iframe")
        assert frames[0].rect["x"] + frames[0].rect["width"] <= frames[1].rect["x"]
        browser.switch_to.frame(frames[1])
        heads = [option.text for option in find(browser, ".map select option")]
        assert {"cross.0 head 0", "cross.0 head 1", "cross.0 mean"} <= set(heads)
        words = [th.text for th in find(browser, ".map thead th")]
        assert words[:3] == ["small", "cat", "<eos>"]
        browser.switch_to.default_content()
        resize(browser, 390)
        frames = find(browser, "iframe")
        assert frames[1].rect["y"] > frames[0].rect["y"] + 100
        assert find(browser, "textarea")[0].rect["width"] > 250  # the button is below it
