"""The parts of the report one by one: settings, hashes, sentences, tables."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.analysis.intervals import score_tests
from compare.analysis.tables import Table
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.report.html.analyses import speed
from compare.report.html.methods import methods
from compare.report.html.parts import Drawing, HtmlTable, cell, first_to_last, heading, html_table
from compare.report.html.sentences import SENTENCES, differences, draw_numbers, draw_sentences
from compare.report.loaded_experiment import LoadedExperiment, load_for_report
from compare.results.run_folder import RunFolder
from data.vocabulary import split_words
from tests.kits.report import write_experiment


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("report") / "made")


@pytest.fixture(scope="module")
def loaded(made: Path) -> LoadedExperiment:
    return load_for_report(made)


def texts(found: HtmlTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in found.rows]


def test_settings_are_told_apart_and_read_back(loaded: LoadedExperiment, made: Path, tmp_path: Path):
    found = methods(loaded)
    shared = {row[0].text: row[1].text for row in found.shared.rows}
    differing = {row[0].text: [cell.text for cell in row[1:]] for row in found.differing.rows}
    assert shared["decode.beam_size"] == "5"
    assert shared["data.src"] == '"en"'
    assert differing["model.dropout"] == ["0.0", "0.1", "0.2"]
    assert differing["model.preset"] == ['"lstm"', '"lstm"', '"transformer"']
    assert not shared.keys() & differing.keys()
    assert "train.seed" not in shared.keys() | differing.keys()
    path = tmp_path / "made.toml"
    path.write_text(found.config)
    singles = [RunFolder.read(made / f"{label}-seed1").run for label in loaded.labels]
    assert resolve_models(load_experiment(path)) == singles
    assert found.commands[0] == "attnbench run made.toml --seeds 1,2"


def test_hashes_and_signatures_are_whole(loaded: LoadedExperiment):
    found, last = methods(loaded), loaded.rows[-1]
    hashes = texts(found.hashes)[-1]
    weights = last.files["checkpoints/final.safetensors"]
    assert hashes == [
        "transformer, seed 2",
        last.data_hash,
        last.batch_hash,
        last.config_hash,
        weights,
        last.code_version,
    ]
    conditions = dict(found.conditions)
    assert conditions["BLEU"] == last.bleu_signature
    assert conditions["chrF"] == last.tests["test_long"]["chrf_signature"]
    assert conditions["Hardware"] == "a machine, torch 2.0, 1 threads"
    assert conditions["Precision"] == "training fp32"


def test_sentences_are_drawn_by_the_seed():
    assert draw_numbers(1000, 1) == draw_numbers(1000, 1) == sorted(set(draw_numbers(1000, 1)))
    assert len(draw_numbers(1000, 1)) == SENTENCES >= 20
    assert draw_numbers(1000, 1) != draw_numbers(1000, 2)
    assert draw_numbers(7, 1) == list(range(7))


def test_sentences_hold_every_model_and_their_own_lines(loaded: LoadedExperiment, made: Path):
    found = draw_sentences(loaded.finished, score_tests(loaded.finished), 1)
    assert Counter(sentence.test for sentence in found) == {"test": 20, "test_long": 20}
    corpus = made.with_name("made-corpus")
    for sentence in found:
        place = sentence.number - 1
        assert sentence.src == (corpus / f"{sentence.test}.en").read_text().splitlines()[place]
        assert sentence.words == len(sentence.src.split())
        for output in sentence.outputs:
            said = (made / f"{output.model}-seed1" / f"{sentence.test}.hyp").read_text().splitlines()[place]
            kept = [piece.text for piece in output.pieces if piece.kind != "missing"]
            assert " ".join(kept).split() == said.split()
            assert output.exact == (said == sentence.ref) == (output.chrf == pytest.approx(100))
        assert [output.model for output in sentence.outputs] == ["lstm", "rnn", "transformer"]


def marked(hypothesis: str, reference: str) -> list[tuple[str, str, bool]]:
    return [(piece.kind, piece.text, piece.spaced) for piece in differences(hypothesis, reference)]


def test_differences_worked_out_by_hand():
    assert marked("Der Hund schläft.", "Der Hund schläft.") == [("same", "Der Hund schläft.", True)]
    assert marked("Der Hund bellt.", "Der Hund schläft.") == [
        ("same", "Der Hund", True),
        ("missing", "schläft", True),
        ("extra", "bellt", True),
        ("same", ".", False),
    ]
    assert marked("Hund", "Der Hund") == [("missing", "Der", True), ("same", "Hund", True)]
    assert marked("ja, ja", "ja , ja") == [("same", "ja, ja", True)]  # white space is no difference
    assert marked("", "Der Hund") == [("missing", "Der Hund", True)]
    assert marked("ja, ja", "ja") == [("same", "ja", True), ("extra", ", ja", False)]


WORDS = st.lists(st.sampled_from(["a", "b", "c-d", "e's", ",", ".", "￭", "<b>"]), max_size=9).map(" ".join)


@given(WORDS, WORDS)
def test_differences_lose_no_word_of_either_side(hypothesis: str, reference: str):
    pieces = differences(hypothesis, reference)
    for text, kind in ((hypothesis, "extra"), (reference, "missing")):
        own = [word for piece in pieces if piece.kind in ("same", kind) for word in split_words(piece.text)]
        assert own == split_words(text)


def test_a_line_is_told_by_its_ends_over_seeds():
    rows = [
        {"label": label, "seed": seed, "bleu": bleu}
        for label, seed, bleu in [("a", 1, 1.0), ("a", 1, 9.0), ("a", 2, 3.0), ("b", 1, None), ("b", 1, 2.0)]
    ]
    assert first_to_last(rows, "bleu") == "a 2 to 6; b 2 to 2"


def test_speeds_that_nobody_knows_are_not_drawn(loaded: LoadedExperiment):
    unknown = {"train_tokens_per_s": None, "beam_sentences_per_s": None}
    without = dict(unknown, latency_ms_p50=None)
    for lost, drawings in ((unknown, ["speed-bars"]), (without, [])):
        runs = tuple(replace(run, result=replace(run.result, **lost)) for run in loaded.finished.runs)
        found = list(speed(replace(loaded.finished, runs=runs)))
        assert [part.name for part in found if isinstance(part, Drawing)] == drawings
        assert any("seconds" in part.title for part in found)


def test_a_figure_that_is_no_number_is_not_sorted_as_one():
    assert [cell(value).order for value in (2, 0.5, float("nan"), float("inf"), None, "2")] == [
        2.0,
        0.5,
        None,
        None,
        None,
        None,
    ]


def test_a_grid_leaves_out_what_nobody_knows():
    found = html_table(
        Table("why", [{"label": "a", "joules": None}, {"label": "b", "joules": None, "f1": 0.5}]), "what"
    )
    assert [head.text for head in found.heads] == ["label", "F1"]
    assert [head.numeric for head in found.heads] == [False, True]
    assert texts(found) == [["a", "–"], ["b", "0.5"]]
    assert heading("bleu_difference_percent") == "BLEU difference (%)"
