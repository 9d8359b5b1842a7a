"""Translation with a trained model: order of lines, unusual lines, and attention weights."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compare.cli import main
from compare.decoding.translator import Translator
from compare.results.store import read_result
from compare.results.trained_model import load_model
from compare.system import cpu as packed_linear
from data.vocabulary import BOS, EOS

ROWS = ("luong-seed1", "transformer-seed1")
LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees", "tree tree tree tree", "dog"]


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest, finished: Path) -> Path:
    return finished / request.param


@pytest.fixture(scope="module")
def translator(row: Path) -> Translator:
    return load_model(row)


@pytest.fixture(scope="module")
def sharp(row: Path) -> Translator:
    """In float64 and with larger logits, so that hypotheses differ and rounding decides none of them."""
    translator = load_model(row)
    translator.model.double()
    with torch.no_grad():
        translator.model.output.weight.mul_(4.0)
    return translator


def test_a_loaded_model_translates_as_the_run_did(translator: Translator, row: Path):
    lines = (row.parent / "test.src").read_text().splitlines()
    assert translator.translate(lines) == (row / "test.hyp").read_text().splitlines()
    assert any(line for line in (row / "test.hyp").read_text().splitlines())
    result = read_result(row)
    assert (translator.decode.beam_size, translator.penalty.alpha) == (2, result.length_penalty)


def test_a_loaded_model_gets_a_folder_as_text_too(row: Path, translator: Translator):
    assert load_model(str(row)).translate(LINES) == translator.translate(LINES)


@pytest.mark.parametrize("beam", [1, 4])
def test_every_line_is_translated_in_its_place(sharp: Translator, beam: int):
    together = sharp.translate(LINES, beam_size=beam)
    assert together == [sharp.translate([line], beam_size=beam)[0] for line in LINES]
    assert sharp.translate(LINES[::-1], beam_size=beam) == together[::-1]
    assert len(set(together)) > 3
    assert together[0] == together[-1]


def test_the_decode_budget_changes_no_translation(sharp: Translator, row: Path):
    narrow = load_model(row)
    narrow.model.double().load_state_dict(sharp.model.state_dict())
    narrow.decode = dataclasses.replace(sharp.decode, batch_tokens=8)
    assert narrow.translate(LINES) == sharp.translate(LINES)


@pytest.mark.parametrize("beam", [1, 4])
def test_searches_use_the_weights_of_their_time(row: Path, beam: int, monkeypatch: pytest.MonkeyPatch):
    """What is packed of the weights must not outlive a search, since training goes on between two."""
    monkeypatch.setattr(packed_linear, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(packed_linear, "sends_fp32_to_onednn", lambda: True)
    translator, twin = load_model(row), load_model(row)
    before = translator.search(LINES, beam)
    for each in (translator, twin):
        for parameter in each.model.parameters():
            parameter.data.mul_(3.0)  # as optimizers of others do, which torch does not count as a change
    after = translator.search(LINES, beam)
    assert after == twin.search(LINES, beam)
    assert [one.score for one in after] != pytest.approx([one.score for one in before], abs=0.01)
    monkeypatch.setattr("compare.decoding.translator.decoding_copy", lambda model: model)
    plain = translator.search(LINES, beam)
    assert [one.tokens for one in after] == [one.tokens for one in plain]
    assert [one.score for one in after] == pytest.approx([one.score for one in plain], abs=1e-3)


def test_the_beam_of_the_run_is_the_default(sharp: Translator):
    assert sharp.search(LINES) == sharp.search(LINES, 2)
    greedy, wide = (sharp.search(LINES, beam) for beam in (1, 5))
    assert [one.score for one in greedy] != [one.score for one in wide]


def test_no_lines_give_no_translations(translator: Translator):
    assert translator.translate([]) == []


@pytest.mark.parametrize("line", ["", "   ", "\t"])
def test_the_translation_of_a_blank_line_is_empty(
    sharp: Translator, line: str, monkeypatch: pytest.MonkeyPatch
):
    first, last = sharp.translate([LINES[1], LINES[0]])
    assert sharp.translate([line, LINES[1], line, line, LINES[0]]) == ["", first, "", "", last]
    monkeypatch.setattr(sharp, "model", None)  # not needed for it
    assert sharp.translate([line, line]) == ["", ""]
    assert sharp.translate(line) == ""


def test_a_string_is_one_line(sharp: Translator):
    assert sharp.translate(LINES[1]) == sharp.translate([LINES[1]])[0]
    assert sharp.translate(LINES[1], beam_size=1) == sharp.translate(LINES[1:2], beam_size=1)[0]
    assert sharp.translate(iter(LINES)) == sharp.translate(LINES)  # type: ignore[call-overload]


def test_a_translator_says_what_it_is(sharp: Translator):
    weights = sum(weight.numel() for weight in sharp.model.parameters())
    assert repr(sharp).startswith(f"Translator({sharp.label}, {weights:,} weights, on cpu")
    with pytest.raises(TypeError, match="attend takes one sentence as a string, found list"):
        sharp.attend(["red dog"])  # type: ignore[arg-type]


def test_words_never_seen_and_signs_are_no_error(translator: Translator):
    found = translator.translate(["zebra ☃ 漢字", "\x00", "a\u2028b", "😀" * 9])
    assert len(found) == 4
    assert all(isinstance(line, str) for line in found)


def test_a_very_long_line_is_a_batch_of_its_own(sharp: Translator):
    long = " ".join(["small red dog"] * 60)
    both = sharp.search([LINES[1], long], 1)
    assert both[0].tokens == sharp.search([LINES[1]], 1)[0].tokens
    assert len(both[1].tokens) <= int(sharp.decode.max_ratio * 180) + 10


def test_no_translation_is_longer_than_its_limit(sharp: Translator, monkeypatch: pytest.MonkeyPatch):
    step = sharp.model.step

    def never_ending(tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any]:
        logits, state = step(tokens, state, memory)
        logits[:, :, EOS] = -1e4
        return logits, state

    monkeypatch.setattr(sharp.model, "step", never_ending)
    for line, found in zip(LINES, sharp.search(LINES, 1), strict=True):
        assert len(found.tokens) == int(sharp.decode.max_ratio * len(line.split())) + 10


@pytest.mark.parametrize("line", ["", *LINES[:2]])
def test_attention_fits_the_pieces(translator: Translator, line: str):
    found = translator.attend(line)
    assert found.src == [*line.split(), "<eos>"]
    assert found.tgt[-1] == "<eos>"
    assert len(found.tgt) == 1 + len(translator.search([line])[0].tokens)
    assert found.weights
    for name, weights in found.weights.items():
        assert weights.dtype == np.float32
        if name.startswith("cross"):
            assert weights.shape[1:] == (len(found.tgt), len(found.src))
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_attention_is_that_of_the_translation_given(translator: Translator):
    """Row t was used to choose piece t: fed with the pieces before it, by hand."""
    found = translator.attend(LINES[1])
    src = torch.tensor([[*translator.vocabularies.src.encode(LINES[1]), EOS]])
    ids = translator.search([LINES[1]])[0].tokens
    for t in range(len(found.tgt)):
        weights = translator.model.attention(
            src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[BOS, *ids[:t]]])
        )
        for name, matrix in weights.items():
            if name.startswith("cross"):
                np.testing.assert_allclose(
                    matrix[0, :, t].detach().numpy(), found.weights[name][:, t], atol=1e-5
                )


def test_a_folder_that_is_no_run_is_refused(finished: Path, tmp_path: Path):
    for folder in (tmp_path, tmp_path / "absent", finished):
        with pytest.raises(ValueError, match=r"no config\.toml: give the folder of one run"):
            load_model(folder)


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(row: Path, device: str):
    with pytest.raises(ValueError, match=f"device '{device}' cannot be used") as caught:
        load_model(row, device)
    assert "\n" not in str(caught.value)


def test_the_command_translates_standard_input(
    row: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for end in ("\n", "\r\n"):
        content = "".join(line + end for line in LINES).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
        assert main(["translate", str(row)]) == 0
        assert capsys.readouterr().out.splitlines() == translator.translate(LINES)


def test_the_command_says_that_words_are_unknown(
    row: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for text, warned in (("red dog\n", ""), ("red dog\nred xylophone\n", "warning: 1 of 2 lines have words")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", str(row)]) == 0
        printed = capsys.readouterr().err
        assert printed.startswith(warned)
        assert bool(printed) == bool(warned)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_translates_as_the_cpu(row: Path, sharp: Translator):
    on_gpu = load_model(row, "cuda")
    on_gpu.model.double()
    with torch.no_grad():
        on_gpu.model.output.weight.mul_(4.0)
    lines = LINES + (row.parent / "test.src").read_text().splitlines()
    for beam in (1, 4):
        assert on_gpu.translate(lines, beam_size=beam) == sharp.translate(lines, beam_size=beam)
    one, other = (made.attend(LINES[1]) for made in (on_gpu, sharp))
    assert (one.src, one.tgt) == (other.src, other.tgt)
    for name, weights in one.weights.items():
        np.testing.assert_allclose(weights, other.weights[name], atol=1e-5)
