"""Evaluation of trained models: length penalty, forced scoring, other test sets, ensembles."""

import dataclasses
import gzip
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import compare.training.cross_entropy
from compare import (
    load_ensemble,
    load_model,
    score_files,
    score_model,
    score_runs,
    score_translations,
)
from compare.cli import main
from compare.config.parse import load_experiment
from compare.decoding import translator
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.decoding.search import Ensemble, Hypothesis, search, search_all
from compare.decoding.translator import Translator
from compare.experiment import evaluation
from compare.experiment.prepare import load_corpus
from compare.experiment.run import run_experiment
from compare.results.records import choose, read_selection
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.scoring.score import all_metrics, score_texts
from compare.system.log import Reporter
from compare.system.signals import Interrupted
from data.files import hash_file
from data.symbols import SPECIALS
from data.vocabulary import BOS, EOS, load_pair
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS, files
from tests.kits.search import (
    SENTENCES,
    TableModel,
    inputs,
    random_limits,
    random_model,
)


def test_every_run_chooses_from_the_same_grid_by_the_same_rule(finished: Path):
    for name in ROWS:
        folder = RunFolder.read(finished / name)
        penalties = length_penalties(folder.run.decode)
        assert len(penalties) > 4
        selection = read_selection(folder.selection, penalties)
        assert selection.chosen == choose(selection.grid)
        result = read_result(finished / name)
        assert LengthPenalty(result.length_penalty, result.length_normalization) == selection.penalty
        assert result.files["selection.json"]
        assert selection.weights == result.files["checkpoints/final.safetensors"]
        assert load_model(finished / name).penalty == selection.penalty == folder.penalty()


def test_the_scores_of_a_grid_are_those_of_plain_searches(finished: Path):
    name = ROWS[0]
    translator = load_model(finished / name)
    folder = RunFolder.read(finished / name)
    valid = load_corpus(folder.run.data).splits["valid"]
    penalties = length_penalties(folder.run.decode)
    for point in read_selection(folder.selection, penalties).grid:
        translator.penalty = point.penalty
        scores = score_texts(translator.translate(valid.src), valid.tgt, n_bootstrap=2)
        assert (point.bleu, point.length_ratio) == (scores.bleu, scores.length_ratio)


def test_one_value_is_taken_without_a_search(run_tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", lambda *_: pytest.fail("a search"))
    settings = ["decode.length_penalties=0.7", "decode.length_normalization=length", "train.max_updates=2"]
    folder = run_tiny(tmp_path / "run", *settings)
    for name in ROWS:
        result = read_result(folder / name)
        assert (result.length_penalty, result.length_normalization) == (0.7, "length")
        assert not (folder / name / "selection.json").exists()
        assert "selection.json" not in result.files
        assert load_model(folder / name).penalty == LengthPenalty(0.7, "length")
    assert main(["check", str(folder), "-q"]) == 0


@pytest.mark.parametrize("best", [0, 2])
def test_a_choice_at_the_upper_edge_is_warned_of(
    best: int, copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    folder = RunFolder.read(copy / ROWS[0])
    scores = [(30.0 if index == best else 20.0, 1.0) for index in range(3)]
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", Mock(side_effect=scores))
    decode = dataclasses.replace(folder.run.decode, length_penalties=(0.0, 0.5, 4.0))
    folder = dataclasses.replace(folder, run=dataclasses.replace(folder.run, decode=decode))
    translator = load_model(copy / ROWS[0])
    folder.selection.unlink()
    valid = load_corpus(folder.run.data).splits["valid"]
    with caplog.at_level("WARNING"):
        chosen = evaluation.select_penalty(folder, translator, valid)
    assert chosen == LengthPenalty((0.0, 0.5, 4.0)[best], "wu")
    assert ("the largest length penalty of the grid" in caplog.text) == (best == 2)


@pytest.mark.parametrize("place", ["write_atomically", "write_record"])
def test_a_stopped_run_keeps_its_choice_or_makes_it_again(
    place: str, copy: Path, tiny_toml: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
):
    """Stopped after the choice is written, and just before."""
    for name in ROWS:
        (copy / name / "result.json").unlink()
        (copy / name / "selection.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, place, Mock(side_effect=Interrupted(15, "stopped")))
        with pytest.raises(Interrupted):
            run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    chosen = copy / ROWS[0] / "selection.json"
    assert chosen.exists() == (place == "write_atomically")
    searches = Mock(wraps=evaluation.bleu_and_length_ratio)
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", searches)
    run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    points = [len(json.loads((copy / name / "selection.json").read_text())["grid"]) for name in ROWS]
    assert searches.call_count == sum(points[1:] if place == "write_atomically" else points)
    for name in ROWS:
        for file in ("selection.json", "test.hyp"):
            assert (copy / name / file).read_bytes() == (finished / name / file).read_bytes()


def test_a_choice_for_other_weights_is_made_again(copy: Path, tiny_toml: Path, finished: Path):
    path = copy / ROWS[0] / "selection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights": "0" * 64}))
    (copy / ROWS[0] / "result.json").unlink()
    run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    assert path.read_bytes() == (finished / ROWS[0] / "selection.json").read_bytes()


BYTES = "\nA\u2028\r\x85\x0c\x00B\n".encode()
"""Output of the model. Some of these line breaks are two or three bytes in UTF-8, one piece per byte."""
IDS = [len(SPECIALS) + byte for byte in BYTES]
LINE = " A     B "
QUICK = {
    "vocabulary.kind": "unigram",
    "vocabulary.size": 290,
    "train.max_updates": 2,
    "train.valid_every": 1,
    "train.batch_tokens": 256,
}


@pytest.fixture
def line_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every search find ``IDS``, whatever the model has learnt."""

    def found(*arguments: Any, **options: Any) -> list[list[list[Hypothesis]]]:
        rows = search_all(*arguments, **options)
        return [[[Hypothesis(IDS, best.score)] for (best,) in row] for row in rows]

    monkeypatch.setattr(translator, "search_all", found)


@pytest.mark.usefixtures("line_breaks")
def test_an_experiment_whose_models_write_line_breaks_ends_in_a_table(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    command = ["run", str(tiny_toml), "--out", str(out), "-q", "--json", *settings]
    assert main(command) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["status"] for result in results] == ["done", "done"]
    pieces = load_pair(out / ROWS[0]).tgt.pieces(IDS)
    assert pieces == [f"<0x{byte:02X}>" for byte in BYTES]
    for name in ROWS:
        assert (out / name / "test.hyp").read_bytes().decode() == f"{LINE}\n" * 8

    model = load_model(out / ROWS[0])
    assert model.translate(["dog", "", "cat"]) == [LINE, "", LINE]
    assert model.translate("dog") == LINE
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"dog\n\ncat\n")))
    assert main(["translate", str(out / ROWS[0])]) == 0
    assert capsys.readouterr().out == f"{LINE}\n\n{LINE}\n"


# Forced scoring.
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


def test_the_command_of_forced_scoring(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
):
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
    assert main([*command, runs[0]]) == 0
    assert (
        f"{expected[runs[0]].sums.perplexity:.4f} per token (18 tokens, 1 unknown)" in capsys.readouterr().out
    )
    tgt.write_text("eins\n")
    assert f"{src} has 5 lines but {tgt} has 1" in refusal(*command, *runs)
    assert "no such file" in refusal(*command, runs[0], "--src", tmp_path / "x")


# Other test sets.


@pytest.fixture
def texts(tiny_toml: Path) -> tuple[Path, Path]:
    """Source and references of the experiment's own test set."""
    return tiny_toml.parent / "corpus" / "test.en", tiny_toml.parent / "corpus" / "test.de"


def test_the_scores_of_its_own_test_set_are_those_of_the_run(
    finished: Path, texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before, (src, ref) = files(finished), texts
    runs = [str(finished / row) for row in ROWS]
    command = ["score", *runs, "--src", str(src), "--ref", str(ref), "-q"]
    assert main([*command, "--json", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in rows] == runs
    for name, row in zip(ROWS, rows, strict=True):
        result = read_result(finished / name)
        for column in ("bleu", "bleu_ci_low", "chrf", "ter", "length_ratio", "bleu_signature"):
            assert row[column] == getattr(result, column)
        assert (tmp_path / "out" / f"{name}.hyp").read_text() == (finished / name / "test.hyp").read_text()
    assert files(finished) == before


def test_a_new_test_set(finished: Path, tmp_path: Path):
    src, first, second, out = (tmp_path / name for name in ("src.gz", "ref1", "ref2", "out"))
    src.write_bytes(gzip.compress(b"red dog\nold cat sees tree\nsmall dog\n"))
    first.write_text("Hund rot\nBaum sieht Katze alt\nHund klein\n")
    second.write_text("Hund rot\nBaum sieht die Katze\nHund klein\n")
    run = finished / ROWS[0]
    scores = score_runs(run, src, [first, second], out=out)
    translations = out / f"{ROWS[0]}.hyp"
    assert len(translations.read_text().splitlines()) == 3
    assert scores == {str(run): score_files(translations, [first, second], all_metrics())[str(translations)]}


def test_mistakes_end_before_any_work(
    finished: Path,
    texts: tuple[Path, Path],
    tmp_path: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
):
    src, ref = texts
    run = finished / ROWS[0]
    monkeypatch.setattr("compare.experiment.evaluation.load_model", None)
    short = tmp_path / "short"
    short.write_text("eins\n")
    assert f"{src} has 8 lines but {short} has 1" in refusal("score", run, "--src", src, "--ref", short)
    assert "no such file" in refusal("score", run, "--src", tmp_path / "x", "--ref", ref)
    own = ["--src", src, "--ref", ref, "--out", tmp_path]
    assert f"two runs are called {ROWS[0]}" in refusal("score", run, finished / ".." / "run" / ROWS[0], *own)
    (tmp_path / f"{ROWS[0]}.hyp").touch()
    assert "exists already" in refusal("score", run, *own)


def test_nothing_is_written_if_a_later_run_cannot_be_translated(
    finished: Path, texts: tuple[Path, Path], tmp_path: Path
):
    out = tmp_path / "out"
    with pytest.raises((OSError, ValueError)):
        score_runs([finished / ROWS[0], tmp_path / "absent"], texts[0], [texts[1]], out=out)
    assert not list(out.glob("*"))


# Ensembles: the mean of probabilities.
LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees"]


class Module(torch.nn.Module):
    """A table model as a module, which members of an ensemble are."""

    def __init__(self, table: TableModel) -> None:
        super().__init__()
        self.encode, self.init_state, self.step = table.encode, table.init_state, table.step


def averaged(models: list[TableModel]) -> TableModel:
    """A table model of the mean probabilities, computed with lists of all prefixes at once."""
    tables = [model.table.softmax(dim=2) for model in models]
    return TableModel((sum(tables) / len(tables)).log())


@pytest.mark.parametrize("beam", [1, 3])
def test_it_searches_the_mean_of_the_probabilities(beam: int):
    members = [random_model(seed=seed) for seed in (2, 3, 4)]
    arguments = inputs(random_limits())
    found = search(Ensemble(list(map(Module, members))), **arguments, beam_size=beam)
    expected = search(averaged(members), **arguments, beam_size=beam)
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-10)
    alone = search(members[0], **arguments, beam_size=beam)
    assert sum(one.tokens != other.tokens for one, other in zip(found, alone, strict=True)) > SENTENCES // 3


def test_forced_scores_are_the_mean_of_the_probabilities(finished: Path):
    together = load_ensemble([finished / row for row in ROWS])
    alone = [load_model(finished / row) for row in ROWS]
    tgt = ["Hund", "Baum rot klein sieht Katze alt", "", "sieht Hund rot"]
    scores = [score_translations(each, LINES, tgt).sentences for each in (together, *alone)]
    for mean, first, second in zip(*scores, strict=True):
        for logp, *members in zip(mean.logp, first.logp, second.logp, strict=True):
            expected = torch.tensor(members, dtype=torch.float64).exp().mean().log()
            assert logp == pytest.approx(float(expected), abs=1e-5)


def test_members_must_be_different_runs_of_one_vocabulary(finished: Path, tmp_path: Path, refusal: Refusal):
    first, second = (finished / row for row in ROWS)
    other = shutil.copytree(second, tmp_path / "other")
    result = json.loads((other / "result.json").read_text())
    content = (other / "vocabulary.json").read_text().replace("Hund", "Huhn")
    (other / "vocabulary.json").write_text(content)
    result["files"]["vocabulary.json"] = hash_file(other / "vocabulary.json")
    (other / "result.json").write_text(json.dumps(result))
    assert "has another vocabulary" in refusal("translate", first, other)
    assert "two runs, each given once" in refusal("translate", first, first)
    corpus = ["--src", "x", "--ref", "y"]
    assert "no such file" in refusal("score", first, "--ensemble", *corpus)


def test_the_commands_of_ensembles(
    finished: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    runs = [str(finished / row) for row in ROWS]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert main(["translate", *runs]) == 0
    together = load_ensemble(runs)
    assert capsys.readouterr().out.splitlines() == together.translate(LINES)
    corpus = tiny_toml.parent / "corpus"
    texts = ["--src", str(corpus / "test.en"), "--ref", str(corpus / "test.de"), "-q", "--json"]
    assert main(["score", *runs, "--ensemble", *texts]) == 0
    found = json.loads(capsys.readouterr().out)
    src, ref = ((corpus / f"test.{side}").read_text().splitlines() for side in ("en", "de"))
    scores = score_texts(together.translate(src), ref, scoring=all_metrics())
    assert found == {"system": "+".join(runs), **scores.columns()}
    assert main(["score", *runs, "--ensemble", "--probabilities", *texts]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["perplexity"] == score_translations(together, src, ref).sums.perplexity
