"""One run: length penalty, probabilities of given text, other test sets, ensembles; language models."""

import dataclasses
import gzip
import json
import math
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch.nn.functional import cross_entropy

import compare.fast
from compare import load_ensemble, load_model, score_files, score_model, score_runs, score_translations
from compare.check import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.decoding.search import LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.experiment import compute_result
from compare.experiment import run_model as evaluation
from compare.experiment.compute_result import NOTHING_IN_COMMON, quality_figures
from compare.experiment.prepare import load_corpus, prepare_data
from compare.experiment.run import run_experiment
from compare.experiment.tune import TuningPlan, find_winners, tune_experiment
from compare.report.result_table import write_views
from compare.results.records import read_selection
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results
from compare.scoring import all_metrics, score_texts
from compare.system.log import Reporter
from compare.system.processes import Interrupted
from compare.training.log import read_metrics
from data.files import hash_file
from data.vocabulary import BOS, EOS
from tests.kits.common import ROWS, Refusal, files, first_run
from tests.kits.experiments import edit_json


def test_every_run_chooses_from_the_same_grid_by_the_same_rule(finished: Path):
    for name in ROWS:
        folder = RunFolder.read(finished / name)
        penalties = length_penalties(folder.run.decode)
        assert len(penalties) > 4
        selection = read_selection(folder.selection, penalties)
        result = read_result(finished / name)
        assert LengthPenalty(result.length_penalty, result.length_normalization) == selection.penalty
        assert result.files["selection.json"]
        assert selection.weights == result.files["checkpoints/final.safetensors"]
        assert load_model(finished / name).penalty == selection.penalty == folder.penalty()


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
def test_a_choice_at_the_upper_edge_is_warned_of(best: int, copy: Path, monkeypatch: pytest.MonkeyPatch):
    folder = RunFolder.read(copy / ROWS[0])
    scores = [(30.0 if index == best else 20.0, 1.0) for index in range(3)]
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", Mock(side_effect=scores))
    decode = dataclasses.replace(folder.run.decode, length_penalties=(0.0, 0.5, 4.0))
    folder = dataclasses.replace(folder, run=dataclasses.replace(folder.run, decode=decode))
    translator = load_model(copy / ROWS[0])
    folder.selection.unlink()
    corpus = load_corpus(folder.run.data)
    chosen = evaluation.select_penalty(folder, translator, corpus.splits["valid"])
    assert chosen == LengthPenalty((0.0, 0.5, 4.0)[best], "wu")
    warnings = quality_figures(folder, corpus)["warnings"] or ""
    assert ("is the largest of the grid" in warnings) == (best == 2)
    assert NOTHING_IN_COMMON not in warnings
    monkeypatch.setattr(compute_result, "UNTRAINED", 101)
    assert quality_figures(folder, corpus)["warnings"] == NOTHING_IN_COMMON  # nothing else of such a model


def test_the_memory_of_a_training_that_another_process_began_is_unknown(copy: Path, tiny_toml: Path):
    run = copy / ROWS[0]
    (run / "result.json").unlink()  # stopped after training
    done, other = run_experiment(load_experiment(tiny_toml), copy, Reporter())
    assert (done.status, done.peak_memory_bytes, done.train_peak_memory_bytes) == ("done", None, None)
    assert done.decode_peak_memory_bytes
    peaks = other.train_peak_memory_bytes or 0, other.decode_peak_memory_bytes or 0
    assert other.peak_memory_bytes == max(peaks) > 0
    assert min(peaks) > 0


@pytest.mark.parametrize("stage", ["write_atomically", "write_record"])
def test_a_stopped_run_keeps_its_choice_or_makes_it_again(
    stage: str, copy: Path, tiny_toml: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
):
    """Stopped after the choice is written, and just before."""
    for name in ROWS:  # the kept choice of the second is of other weights
        (copy / name / "result.json").unlink()
    (copy / ROWS[0] / "selection.json").unlink()
    other = copy / ROWS[1] / "selection.json"
    other.write_text(json.dumps({**json.loads(other.read_text()), "weights": "0" * 64}))
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, stage, Mock(side_effect=Interrupted(15, "stopped")))
        with pytest.raises(Interrupted):
            run_experiment(load_experiment(tiny_toml), copy, Reporter())
    chosen = copy / ROWS[0] / "selection.json"
    assert chosen.exists() == (stage == "write_atomically")
    searches = Mock(wraps=evaluation.bleu_and_length_ratio)
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", searches)
    run_experiment(load_experiment(tiny_toml), copy, Reporter())
    points = [len(json.loads((copy / name / "selection.json").read_text())["grid"]) for name in ROWS]
    assert searches.call_count == sum(points[1:] if stage == "write_atomically" else points)
    for name in ROWS:
        for file in ("selection.json", "test.hyp"):
            assert (copy / name / file).read_bytes() == (finished / name / file).read_bytes()


# Forced scoring.
SOURCES = ["red dog", "old cat sees small red tree", "tree", "red dog", "cat sees tree tree"]
TRANSLATIONS = ["Hund rot", "Baum", "", "rot zebra Hund Hund Katze sieht", "Baum Baum sieht Katze"]


@pytest.fixture(scope="module", params=ROWS)
def double(request: pytest.FixtureRequest, finished: Path) -> Translator:
    translator = load_model(finished / request.param)
    translator.model.double()
    return translator


def by_logits(translator: Translator, source: str, translation: str) -> list[float]:
    """Read the log-softmax of the logits of one sentence, without batches and the loss of training."""
    src = torch.tensor([[*translator.vocabularies.src.encode(source), EOS]])
    ids = [*translator.vocabularies.tgt.encode(translation), EOS]
    with torch.no_grad():
        logits = translator.model.eval()(src, None, torch.tensor([[BOS, *ids[:-1]]]))[0]
    return logits.log_softmax(1)[torch.arange(len(ids)), ids].tolist()


@pytest.mark.parametrize("chunk", [1 << 22, 40])
def test_scores_are_those_of_the_logits_sentence_by_sentence(
    double: Translator, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    """With few logits in memory at a time, too."""
    monkeypatch.setattr(compare.fast, "CHUNK_ELEMENTS", chunk)
    scores = score_translations(double, SOURCES, TRANSLATIONS)
    total = 0.0
    for source, translation, sentence in zip(SOURCES, TRANSLATIONS, scores.sentences, strict=True):
        expected = by_logits(double, source, translation)
        assert sentence.logp == pytest.approx(expected, abs=1e-10)
        assert sentence.total == pytest.approx(math.fsum(expected), abs=1e-9)
        assert len(sentence.pieces) == len(translation.split()) + 1
        assert sentence.pieces[-1] == "<eos>"
        total -= math.fsum(expected)
    sums = scores.sums
    assert (sums.tokens, sums.unknown) == (18, 1)
    assert sums.characters == sum(len(line) for line in TRANSLATIONS) + len(TRANSLATIONS)
    assert sums.perplexity == pytest.approx(math.exp(total / 18), rel=1e-9)
    assert sums.char_perplexity == pytest.approx(math.exp(total / sums.characters), rel=1e-9)


def test_nan_is_an_error(finished: Path):
    translator = load_model(finished / ROWS[0])
    with torch.no_grad():
        translator.model.output.weight[5] = math.nan
    with pytest.raises(ValueError, match="scores are NaN"):
        score_translations(translator, ["dog"], ["Hund"])


def test_a_line_that_memory_cannot_hold_is_named(finished: Path):
    with pytest.raises(ValueError, match=r"line 2 has 20,000 tokens"):
        score_translations(load_model(finished / ROWS[0]), ["dog", "dog"], ["Hund", "[" * 20_000])


# Other test sets.


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


# Ensembles: the mean of probabilities.
LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees"]


def test_forced_scores_are_the_mean_of_the_probabilities(finished: Path):
    together = load_ensemble([finished / row for row in ROWS])
    alone = [load_model(finished / row) for row in ROWS]
    tgt = ["Hund", "Baum rot klein sieht Katze alt", "", "sieht Hund rot"]
    scores = [score_translations(models, LINES, tgt).sentences for models in (together, *alone)]
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
    assert "have different vocabularies" in refusal("translate", first, other)
    assert "two different runs" in refusal("translate", first, first)
    corpus = ["--src", "x", "--ref", "y"]
    assert "no such file" in refusal("score", first, "--ensemble", *corpus)
    said = refusal("score", first, "--external", "comet", *corpus)
    assert said == "--external has no effect with runs and --ref: leave it out"


def test_the_command_that_scores_runs(
    finished: Path,
    tiny_toml: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refusal: Refusal,
):
    """Each run, their ensemble, and the probabilities of both, of the experiment's own test set."""
    before, runs = files(finished), [str(finished / row) for row in ROWS]
    src, ref = (tiny_toml.parent / "corpus" / f"test.{language}" for language in ("en", "de"))
    command = ["score", *runs, "--src", str(src), "--ref", str(ref), "-q", "--json"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    for name, row in zip(ROWS, json.loads(capsys.readouterr().out), strict=True):
        result = read_result(finished / name)
        assert (row["bleu"], row["chrf"], row["ter"]) == (result.bleu, result.chrf, result.ter)
        assert (tmp_path / "out" / f"{name}.hyp").read_text() == (finished / name / "test.hyp").read_text()
    sources, references = (path.read_text().splitlines() for path in (src, ref))
    together = load_ensemble(runs)
    assert main([*command, "--ensemble"]) == 0
    records = json.loads(capsys.readouterr().out)
    scores = score_texts(together.translate(sources), references, scoring=all_metrics())
    assert {*scores.warnings} <= {*records.pop("warnings")}
    assert records == {"system": "+".join(runs), **scores.columns()}
    assert main([*command, "--ensemble", "--probabilities"]) == 0
    expected = score_translations(together, sources, references)
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(expected.sums.perplexity)
    assert main([*command, "--probabilities"]) == 0
    rows = json.loads(capsys.readouterr().out)
    measured = [read_result(Path(run)).perplexity for run in runs]
    assert [row["perplexity"] for row in rows] == pytest.approx(measured, rel=1e-5)
    short = tmp_path / "short"
    short.write_text("eins\n")
    for option in ([], ["--probabilities"]):
        said = refusal("score", runs[0], "--src", src, "--ref", short, *option)
        assert f"{src} has 8 lines, but {short} has 1" in said
    arguments = ["--src", src, "--ref", ref, "--out", tmp_path]
    same = finished / ".." / finished.name / ROWS[0]
    assert f"two runs are called {ROWS[0]}" in refusal("score", runs[0], same, *arguments)
    (tmp_path / f"{ROWS[0]}.hyp").touch()
    assert "exists already" in refusal("score", runs[0], *arguments)
    assert files(finished) == before


MODELS = """
[[models]]
preset = "lstm-lm"
embedding_size = 16
hidden_size = 16
learning_rate = 1e-2

[[models]]
preset = "transformer-lm"
d_model = 16
num_heads = 2
num_layers = 1
ffn_size = 32
warmup_updates = 5
"""
NAMES = ("lstm-lm-seed1", "transformer-lm-seed1")


@pytest.fixture(scope="module")
def toml(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny experiment without search settings, with other models."""
    path = tmp_path_factory.mktemp("language-models") / "tiny-lm.toml"
    text = tiny_toml.read_text().replace("[decode]\nbeam_size = 2\n", "").split("[[models]]")[0] + MODELS
    path.write_text(
        text.replace("max_updates = 90", "max_updates = 24").replace("valid_every = 40", "valid_every = 8")
    )
    return path


@pytest.fixture(scope="module")
def modelled(toml: Path) -> Path:
    """The folder of the experiment, run to its end without a break, with its tables."""
    folder = toml.parent / "run"
    run_experiment(load_experiment(toml), folder, Reporter())
    write_views(folder)
    return folder


def test_only_likelihoods_are_measured_and_the_targets_alone_are_counted(modelled: Path, toml: Path):
    prepared = prepare_data(first_run(toml), modelled / "encoded")
    assert prepared.train.src_lengths.sum() == 0
    for result in read_results(modelled):
        assert result.status == "done"
        assert result.perplexity is not None
        assert 1 < result.char_perplexity < result.perplexity < 40
        assert result.bleu is result.length_penalty is result.latency_ms_p50 is None
        assert result.timed_tokens_per_s == result.timed_tgt_tokens_per_s > 0
        assert sorted(path.name for path in (modelled / result.run).glob("*.hyp*")) == []
        lines = read_metrics(modelled / result.run / "metrics.jsonl")
        windows = [line for line in lines if line["kind"] == "train"]
        assert sum(line["tgt_tokens"] for line in windows) == result.tokens_seen
    assert len({result.batch_hash for result in read_results(modelled)}) == 1


def test_the_weights_with_the_lowest_validation_loss_are_kept(modelled: Path):
    for name in NAMES:
        lines = read_metrics(modelled / name / "metrics.jsonl")
        validated = {line["update"]: line["loss"] for line in lines if line["kind"] == "valid"}
        final = lines[-1]
        assert len(validated) == 3
        assert final["best_update"] == min(validated, key=lambda update: validated[update])
        mean = next(line["loss"] for line in lines if line["kind"] == "average")
        assert final["loss"] == min([mean, *validated.values()])
        assert ("average" in final["chosen"]) == (mean < min(validated.values()))


@pytest.mark.parametrize("name", NAMES)
def test_perplexity_is_that_of_the_logits_sentence_by_sentence(name: str, modelled: Path, toml: Path):
    """In float64, without batches, padding or the loss of training."""
    translator = load_model(modelled / name)
    model = translator.model.double().eval()
    root = Path(load_experiment(toml).data.root)
    lines = (root / "test.de").read_text().splitlines()
    nll, tokens = 0.0, 0
    for line in lines:
        ids = translator.vocabularies.tgt.encode(line)
        with torch.no_grad():
            logits = model.model(torch.tensor([[BOS, *ids]]))[0]  # type: ignore[operator]
        nll += float(cross_entropy(logits, torch.tensor([*ids, EOS]), reduction="sum"))
        tokens += len(ids) + 1
    result = read_result(modelled / name)
    assert result.perplexity == pytest.approx(math.exp(nll / tokens), rel=1e-5)
    characters = sum(len(line) + 1 for line in lines)
    assert result.char_perplexity == pytest.approx(math.exp(nll / characters), rel=1e-5)
    (scores,) = score_model(modelled / name, None, root / "test.de").values()
    assert scores.sums.perplexity == pytest.approx(result.perplexity, rel=1e-5)


def test_the_check_decodes_the_perplexities_again(modelled: Path, tmp_path: Path):
    assert check_experiment(modelled, decode=1).differences == []
    copy = Path(shutil.copytree(modelled, tmp_path / "copy"))
    edit_json(copy / NAMES[0] / "perplexity.json", lambda content: content["tests"]["test"].update(nll=1.0))
    differences = {finding.name for finding in check_experiment(copy, decode=1).differences}
    assert {"perplexity", "char_perplexity", "perplexity.json: nll of test, by the weights"} <= differences


def test_a_search_is_decided_by_the_validation_loss(toml: Path, tmp_path: Path):
    tuning = tune_experiment(load_experiment(toml), tmp_path / "out", TuningPlan(trials=2, updates=4))
    assert {trial.bleu for trial in tuning.trials} == {None}
    for label, winner in find_winners(tuning.trials).items():
        losses = [trial.loss for trial in tuning.trials if trial.label == label and trial.loss is not None]
        assert winner.loss == min(losses)


def test_a_language_model_does_not_translate(modelled: Path):
    translator = load_model(modelled / NAMES[0])
    for call in (translator.translate, translator.generate, translator.attend):
        with pytest.raises(ValueError, match="a language model reads no source, so it cannot translate"):
            call(["red dog"] if call == translator.generate else "red dog")
