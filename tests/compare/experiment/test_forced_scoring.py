"""Probabilities of given translations: against full logits and stepwise decoding, alone and together."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import compare.training.cross_entropy
from compare import load_model, load_table, render_table, score_model, score_translations
from compare.cli import main
from compare.decoding.length_penalty import LengthPenalty
from compare.decoding.translator import Translator
from compare.results.store import read_result
from data.vocabulary import BOS, EOS
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS

SOURCES = ["red dog", "old cat sees small red tree", "tree", "red dog", "cat sees tree tree"]
TRANSLATIONS = ["Hund rot", "Baum", "", "rot zebra Hund Hund Katze sieht", "Baum Baum sieht Katze"]


@pytest.fixture(scope="module", params=ROWS)
def double(request: pytest.FixtureRequest, finished: Path) -> Translator:
    translator = load_model(finished / request.param)
    translator.model.double()
    return translator


def by_steps(translator: Translator, source: str, translation: str) -> list[float]:
    """Feed the translation token by token to the decoder, as search does, and read its log-softmax."""
    src = torch.tensor([[*translator.vocabularies.src.encode(source), EOS]])
    ids = [*translator.vocabularies.tgt.encode(translation), EOS]
    model = translator.model.eval()
    logp = []
    with torch.no_grad():
        memory = model.encode(src, torch.ones_like(src, dtype=torch.bool))
        state = model.init_state(memory, 1, len(ids))
        for before, token in zip([BOS, *ids], ids, strict=False):
            logits, state = model.step(torch.tensor([[before]]), state, memory)
            row = logits[0, 0].tolist()
            top = max(row)
            logp.append(row[token] - top - math.log(math.fsum(math.exp(value - top) for value in row)))
    return logp


@pytest.mark.parametrize("chunk", [1 << 22, 40])
def test_scores_are_those_of_the_decoder_step_by_step(
    double: Translator, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    """With few logits in memory at a time, too."""
    monkeypatch.setattr(compare.training.cross_entropy, "CHUNK_ELEMENTS", chunk)
    found = score_translations(double, SOURCES, TRANSLATIONS)
    total = 0.0
    for source, translation, sentence in zip(SOURCES, TRANSLATIONS, found.sentences, strict=True):
        expected = by_steps(double, source, translation)
        assert sentence.logp == pytest.approx(expected, abs=1e-10)
        assert sentence.total == pytest.approx(math.fsum(expected), abs=1e-9)
        assert len(sentence.pieces) == len(translation.split()) + 1
        assert sentence.pieces[-1] == "<eos>"
        total -= math.fsum(expected)
    sums = found.sums
    assert (sums.tokens, sums.unknown) == (18, 1)
    assert sums.characters == sum(len(line) for line in TRANSLATIONS) + len(TRANSLATIONS)
    assert sums.perplexity == pytest.approx(math.exp(total / 18), rel=1e-9)
    assert sums.char_perplexity == pytest.approx(math.exp(total / sums.characters), rel=1e-9)


def test_neighbours_and_batches_change_nothing(double: Translator):
    together = score_translations(double, SOURCES, TRANSLATIONS).sentences
    in_batches = Translator(
        double.model, double.vocabularies, replace(double.decode, batch_tokens=1), double.device
    )
    for one, other in zip(
        score_translations(in_batches, SOURCES, TRANSLATIONS).sentences, together, strict=True
    ):
        assert one.logp == pytest.approx(other.logp, abs=1e-12)
    for number, sentence in enumerate(together):
        (alone,) = score_translations(double, SOURCES[number : number + 1], [TRANSLATIONS[number]]).sentences
        assert sentence.logp == pytest.approx(alone.logp, abs=1e-12)
        assert sentence.pieces == alone.pieces


def test_the_score_is_that_of_search(double: Translator):
    """The hypothesis of search has the same log-probability when it is scored as a given translation."""
    double.penalty = LengthPenalty(0.0)
    found = double.search(SOURCES)
    texts = [double.vocabularies.tgt.decode(hypothesis.tokens) for hypothesis in found]
    scores = score_translations(double, SOURCES, texts).sentences
    known = [pair for pair in zip(found, scores, strict=True) if "<unk>" not in pair[1].pieces]
    assert known
    for hypothesis, sentence in known:
        assert sentence.total == pytest.approx(hypothesis.score, abs=1e-9)


def test_nan_is_an_error(finished: Path):
    translator = load_model(finished / ROWS[0])
    with torch.no_grad():
        translator.model.output.weight[5] = math.nan
    with pytest.raises(ValueError, match="scores are NaN"):
        score_translations(translator, ["dog"], ["Hund"])


def test_lists_that_do_not_match(double: Translator):
    for sources, translations in ((["dog"], []), ([], []), (["a", "b"], ["c"])):
        with pytest.raises(ValueError, match="one translation per source"):
            score_translations(double, sources, translations)
    with pytest.raises(ValueError, match="sources must be a list of sentences, found one string"):
        score_translations(double, "dog", ["Hund"])


def test_the_command(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal):
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_text("".join(f"{line}\n" for line in SOURCES))
    tgt.write_text("".join(f"{line}\n" for line in TRANSLATIONS))
    runs = [str(finished / row) for row in ROWS]
    expected = score_model(runs, src, tgt)
    command = ["score", "--probabilities", "--src", str(src), "--ref", str(tgt), "-q"]
    assert main([*command, *runs, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == runs
    for row, found in zip(rows, expected.values(), strict=True):
        assert row["perplexity"] == found.sums.perplexity
        assert row["char_perplexity"] == found.sums.char_perplexity
        assert [one["logp"] for one in row["sentences"]] == [one.total for one in found.sentences]
        assert row["sentences"][1]["pieces"] == ["Baum", "<eos>"]
        assert row["logp"] == pytest.approx(sum(sum(one["piece_logp"]) for one in row["sentences"]))
    assert main([*command, runs[0]]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SOURCES)
    assert lines[0].startswith(f"{expected[runs[0]].sentences[0].total:.4f}\tHund:")
    assert f"{expected[runs[0]].sums.perplexity:.4f} per token (18 tokens, 1 unknown)" in last
    assert main([*command, *runs]) == 0
    assert "perplexity per character" in capsys.readouterr().out
    tgt.write_text("eins\n")
    assert f"{src} has 5 lines but {tgt} has 1" in refusal(*command, *runs)
    assert "no such file" in refusal(*command, runs[0], "--src", tmp_path / "x")


def test_a_run_measures_the_perplexity_of_its_test_sets(finished: Path, tiny_toml: Path):
    corpus = tiny_toml.parent / "corpus"
    for name in ROWS:
        (scores,) = score_model(finished / name, corpus / "test.en", corpus / "test.de").values()
        result = read_result(finished / name)
        assert result.perplexity == pytest.approx(scores.sums.perplexity, rel=1e-6)
        assert result.char_perplexity == pytest.approx(scores.sums.char_perplexity, rel=1e-6)
        assert "perplexity.json" in result.files
    table = render_table(load_table(finished))
    assert "| perplexity | perplexity per character |" in " ".join(table.split())
