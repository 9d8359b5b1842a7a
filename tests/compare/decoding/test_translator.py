"""Translation with a trained model: order of lines, unusual lines, attention weights, workloads of timing."""

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compare import fast
from compare.cli import main
from compare.config.sections import DecodeConfig
from compare.decoding.search import LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.experiment.prepare import load_corpus
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import read_result
from data.vocabulary import BOS, EOS
from tests.kits.common import ROWS

LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees", "tree tree tree tree", "dog"]
GRID = DecodeConfig(length_penalties=(0.0, 0.6, 3.0), length_normalization="both")


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest, finished: Path) -> Path:
    return finished / request.param


@pytest.fixture(scope="module")
def translator(row: Path) -> Translator:
    return load_model(str(row))


def sharpened(row: Path, factor: float, device: str = "cpu") -> Translator:
    """Load a model in float64 and with larger logits: hypotheses differ, rounding decides none of them."""
    translator = load_model(row, device)
    translator.model.double()
    with torch.no_grad():
        translator.model.output.weight.mul_(factor)
    return translator


@pytest.fixture(scope="module")
def sharp(row: Path) -> Translator:
    return sharpened(row, 4.0)


def test_a_loaded_model_translates_as_the_run_did(translator: Translator, row: Path):
    lines = load_corpus(RunFolder.read(row).run.data).splits["test"].src
    assert translator.translate(lines) == (row / "test.hyp").read_text().splitlines()
    assert any(line for line in (row / "test.hyp").read_text().splitlines())
    result = read_result(row)
    assert (translator.decode.beam_size, translator.penalty.alpha) == (2, result.length_penalty)


@pytest.mark.parametrize("beam", [1, 4])
def test_every_line_is_translated_in_its_place_whatever_is_beside_it(sharp: Translator, beam: int):
    together = sharp.translate(LINES, beam_size=beam)
    assert together == [sharp.translate(line, beam_size=beam) for line in LINES]
    assert sharp.translate(LINES[::-1], beam_size=beam) == together[::-1]
    assert len(set(together)) > 3
    narrow = dataclasses.replace(sharp.decode, batch_tokens=8)
    by_few = Translator(sharp.model, sharp.vocabularies, narrow, sharp.device, sharp.penalty)
    assert by_few.translate(LINES, beam_size=beam) == together


def test_the_translations_of_a_grid_are_those_of_each_point(row: Path):
    sharp, penalties = sharpened(row, 2.0), length_penalties(GRID)
    together = sharp.translate_all(["", *LINES], penalties, beam_size=4)
    for penalty, translations in zip(penalties, together, strict=True):
        alone = Translator(sharp.model, sharp.vocabularies, GRID, sharp.device, penalty)
        assert ["", *alone.translate(LINES, beam_size=4)] == translations
    assert len(set(map(tuple, together))) > 1
    without = Translator(sharp.model, sharp.vocabularies, GRID, sharp.device)
    assert without.penalty == LengthPenalty(0.0, "wu")  # the smallest, as long as none is chosen


@pytest.mark.parametrize("beam", [1, 4])
def test_searches_use_the_weights_of_their_time(row: Path, beam: int, monkeypatch: pytest.MonkeyPatch):
    """Packed weights must not outlive a search, because training goes on between two."""
    monkeypatch.setattr(fast, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(fast, "sends_fp32_to_onednn", lambda: True)
    translator, twin = load_model(row), load_model(row)
    before = translator.search(LINES, beam)
    for changed in (translator, twin):
        for parameter in changed.model.parameters():
            parameter.data.mul_(3.0)  # torch does not count this as a change
    after = translator.search(LINES, beam)
    assert after == twin.search(LINES, beam)
    assert [one.score for one in after] != pytest.approx([one.score for one in before], abs=0.01)


def test_the_beam_of_the_run_is_the_default(sharp: Translator):
    assert sharp.search(LINES) == sharp.search(LINES, 2)
    greedy, wide = (sharp.search(LINES, beam) for beam in (1, 5))
    assert [one.score for one in greedy] != [one.score for one in wide]


def test_the_translation_of_a_blank_line_is_empty(sharp: Translator, monkeypatch: pytest.MonkeyPatch):
    first, last = sharp.translate([LINES[1], LINES[0]])
    assert sharp.translate(["", LINES[1], " ", "\t", LINES[0]]) == ["", first, "", "", last]
    monkeypatch.setattr(sharp, "model", None)  # not needed for it
    assert sharp.translate(["", "  "]) == ["", ""]
    assert sharp.translate("") == ""
    assert sharp.translate([]) == []


def test_no_translation_is_longer_than_its_limit(sharp: Translator, monkeypatch: pytest.MonkeyPatch):
    step = sharp.model.step

    def never_ending(tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any]:
        logits, state = step(tokens, state, memory)
        logits[:, :, EOS] = -1e4
        return logits, state

    monkeypatch.setattr(sharp.model, "step", never_ending)
    for line, hypothesis in zip(LINES, sharp.search(LINES, 1), strict=True):
        assert len(hypothesis.tokens) == int(sharp.decode.max_ratio * len(line.split())) + 10


@pytest.mark.parametrize("line", ["", LINES[1]])
def test_attention_is_that_of_the_translation(translator: Translator, line: str):
    """Row t was used to choose piece t: fed with the pieces before it."""
    attention = translator.attend(line)
    ids = translator.search([line])[0].tokens
    assert attention.src == [*line.split(), "<eos>"]
    assert (len(attention.tgt), attention.tgt[-1]) == (len(ids) + 1, "<eos>")
    src = torch.tensor([[*translator.vocabularies.src.encode(line), EOS]])
    assert any(name.startswith("cross") for name in attention.weights)
    for name, weights in translator.model.attention(src, None, torch.tensor([[BOS, *ids]])).items():
        assert attention.weights[name].dtype == np.float32
        np.testing.assert_allclose(weights[0].detach(), attention.weights[name], atol=1e-5)


def test_what_is_no_text_is_refused_by_the_name_of_its_argument(translator: Translator):
    for call, argument in (
        (translator.search, "one sentence"),
        (translator.generate, "one sentence"),
        (translator.translate, None),
    ):
        with pytest.raises(ValueError, match=f"expected a list of strings, found {argument!r}"):
            call(argument)
    with pytest.raises(ValueError, match=r"line must be one text, found \['a'\]"):
        translator.attend(["a"])
    with pytest.raises(ValueError, match=r"translation must be one text, found \['b'\]"):
        translator.attend("a", ["b"])


def test_a_translator_says_what_it_is(translator: Translator):
    assert re.fullmatch(
        r"<Translator \S+: \w+, [\d,]+ weights, vocabulary \d+/\d+, beam \d+, cpu>", repr(translator)
    )


def test_what_is_no_device_is_refused(row: Path):
    for device in ("gpu", "", "cuda:99"):
        with pytest.raises(ValueError, match=f"device '{device}' cannot be used"):
            load_model(row, device)


def test_the_command_translates_standard_input(
    row: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A model that has hardly learnt repeats itself and is cut, which is told too."""
    for end, extra, unknown in (("\n", [], False), ("\r\n", ["xylophone 😀 ⁂"] * 3, True)):
        content = "".join(line + end for line in [*LINES, *extra]).encode()
        monkeypatch.setattr(
            "sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)), encoding="ascii")
        )
        assert main(["translate", str(row)]) == 0
        printed = capsys.readouterr()
        assert printed.out.splitlines()[: len(LINES)] == translator.translate(LINES)
        assert ("% of the tokens, in 3 of 9 lines, are not in the vocabulary" in printed.err) == unknown
