"""Content of the report for a whole experiment, and for one with missing parts."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.analysis.comparison import compare_models, smallest_differences
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.gold_alignments import word_pairs
from compare.analysis.intervals import match_runs, score_tests
from compare.analysis.tables import Table
from compare.analysis.word_attention import AttentionHead, attend_words
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.experiment.tune import TrialResult, write_trials
from compare.report.html import results, sentences
from compare.report.html.page import ReportContent, gather_content, unknown
from compare.report.html.results import run_comparisons, significance
from compare.report.html.sections import alignment, first_to_last, methods, speed, tuning_section
from compare.report.html.sentences import attention_viewer, differences, draw_numbers, draw_sentences
from compare.report.table import ShownTable, analysis_table
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import read_result
from data.corpus import Pairs
from data.vocabulary import split_words
from tests.kits.cli import Refusal
from tests.kits.report import change_result, write_experiment


@pytest.fixture(scope="module", autouse=True)
def few_trials():
    """As many trials as the comparisons need; with 10,000 these tests take longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "TRIALS", 400)
        yield


@pytest.fixture(scope="module")
def content(made: Path) -> ReportContent:
    return gather_content(made)


@pytest.fixture(scope="module")
def experiment(made: Path) -> FinishedExperiment:
    return load_finished(made)


def column(content: ReportContent, heading: str) -> dict[str, str]:
    """A column of the result table, by model."""
    (found,) = (each for each in content.results.columns if each.heading == heading)
    return {row["label"]: found.text(row) for row in content.results.rows}


def cells(table: ShownTable) -> list[dict[str, str]]:
    return [dict(zip(table.headings, row, strict=True)) for row in table.cells]


# Result table and significance.


def test_the_table_holds_means_over_seeds_and_each_run(content: ReportContent, made: Path):
    runs = [read_result(made / f"rnn-seed{seed}") for seed in (1, 2)]
    scores = [run.bleu for run in runs]
    assert column(content, "BLEU")["rnn"] == f"{fmean(scores):.1f} ± {stdev(scores):.1f}"
    bleu, interval, *_ = content.results.columns
    rows = content.results.rows[1]["runs"]
    assert [bleu.text(row) for row in rows] == [f"{score:.1f}" for score in scores]
    assert [bleu.order(row) for row in rows] == scores
    assert interval.text(rows[1]) == f"[{runs[1].bleu_ci_low:.1f}, {runs[1].bleu_ci_high:.1f}]"
    assert bleu.help.startswith("on test, mean ± standard deviation; ")
    shown = set(content.results.headings) - set(content.results.optional)
    assert {"BLEU", "combined [95%]", "against transformer", "chrF", "params (M)"} <= shown
    assert not {"test set [95%]", "brevity penalty", "BLEU test_long"} & shown


def test_several_seeds_have_three_intervals_one_seed_has_one(content: ReportContent, tmp_path: Path):
    named = set(content.results.headings)
    assert {"test set [95%]", "seeds [95%]", "combined [95%]", "test_long combined [95%]"} <= named
    single = gather_content(write_experiment(tmp_path / "single", seeds=[1]))
    named = set(single.results.headings)
    assert {"test set [95%]", "test_long test set [95%]"} <= named
    assert not {"seeds [95%]", "combined [95%]"} & named
    assert "Every model ran with one seed: what other seeds would give is not known." in single.unknown
    against = "".join(column(single, "against transformer").values())
    assert "▽ −" in against
    assert not set("▲▼≈") & set(against)
    assert re.match(r"transformer is \d+\.\d BLEU ahead of rnn \(p = 0.03\): ", single.summary[0])
    assert all(": significant on this test set, with one seed." in text for text in single.summary)


def test_models_are_set_against_the_best_or_the_baseline(content: ReportContent, made: Path):
    assert content.reference == "transformer"
    against = column(content, "against transformer")
    assert against["transformer"] == "itself"
    assert against["lstm"].startswith("▼ −")
    assert column(content, "test_long against transformer")["lstm"].startswith("▼ −")
    for label, sentence in zip(("rnn", "lstm"), content.summary, strict=True):
        assert sentence.startswith("transformer ")
        assert f" {label} " in sentence
    other = gather_content(made, baseline="lstm")
    assert column(other, "against lstm")["transformer"] == against["lstm"].replace("▼ −", "▲ +")
    with pytest.raises(ValueError, match="no finished model is labelled 'lsmt'; did you mean 'lstm'"):
        gather_content(made, baseline="lsmt")


def test_every_test_set_and_metric_has_a_matrix_the_same_from_both_sides(
    content: ReportContent, experiment: FinishedExperiment
):
    *matrices, details = content.significance.tables
    assert [matrix.title for matrix in matrices] == [
        f"Differences in {metric} on {test}" for test in ("test", "test_long") for metric in ("BLEU", "chrF")
    ]
    turned = {"▲": "▼", "▼": "▲", "+": "−", "−": "+"}
    for matrix in matrices:
        first, *columns = matrix.columns
        assert (
            [first.text(row) for row in matrix.rows] == matrix.headings[1:] == ["lstm", "rnn", "transformer"]
        )
        for i, row in enumerate(matrix.rows):
            assert columns[i].text(row) == ""
            for j, other in enumerate(matrix.rows[:i]):
                assert columns[j].order(row) == -columns[i].order(other)
                assert columns[j].text(row)[0] == turned[columns[i].text(other)[0]]
    assert len(details.rows) == 12
    assert "for all 12 comparisons" in content.significance.notes[1]
    found = smallest_differences(match_runs(score_tests(experiment)), 12)
    (line,) = (note for note in content.significance.notes if note.startswith("Smallest true difference"))
    assert "a probability of 80%" in line
    assert f": {found['test', 'bleu']:.1f} BLEU and {found['test', 'chrf']:.1f} chrF on test, " in line


def test_where_pairs_are_too_many_one_model_is_set_against_each(experiment: FinishedExperiment, monkeypatch):
    scored = score_tests(experiment)
    monkeypatch.setattr(results, "MOST_COMPARISONS", 11)  # three pairs, two metrics, two test sets
    some = run_comparisons(scored, "rnn")
    assert [(each.first, each.second) for each in some[:2]] == [("lstm", "rnn"), ("transformer", "rnn")]
    (details,) = significance(some, ["lstm", "rnn", "transformer"]).tables
    assert len(details.rows) == 8
    monkeypatch.setattr(results, "MOST_COMPARISONS", 12)
    assert len(run_comparisons(scored, "rnn")) == 12


def test_models_of_different_settings_are_not_compared(copied: Path):
    change_result(copied, "rnn-seed1", settings_hash="a" * 64)
    found = gather_content(copied)
    (note,) = found.significance.notes
    assert "lstm-seed1 and rnn-seed1 were trained or decoded with different settings" in note
    assert found.significance.tables == ()
    assert found.summary == ["The models were not compared: see below."]
    assert found.reference == ""
    assert not [heading for heading in found.results.headings if "against" in heading]
    assert any("do not share their settings" in line for line in found.unknown)
    change_result(copied, "lstm-seed1", bleu_signature="other")
    with pytest.raises(ValueError, match="comparable under one signature only"):
        gather_content(copied)


# Missing parts.


def test_failed_and_unfinished_rows_stand_in_the_table(copied: Path):
    change_result(copied, "rnn-seed2", status="failed", reason="loss became NaN", bleu=None)
    for run in ("lstm-seed1", "lstm-seed2"):
        shutil.rmtree(copied / run)
    found = gather_content(copied)
    assert column(found, "status") == {
        "lstm": "0 of 2 done; unfinished",
        "rnn": "1 of 2 done; failed: loss became NaN",
        "transformer": "done",
    }
    runs = found.results.rows[1]["runs"]
    assert [found.results.columns[-1].text(run) for run in runs] == ["done", "failed: loss became NaN"]
    assert column(found, "BLEU")["lstm"] == "–"
    assert "rnn, seed 2: failed (loss became NaN)" in found.unknown
    assert "lstm, seed 1: unfinished" in found.unknown
    assert "rnn ran with one seed: what other seeds would give is not known." in found.unknown
    assert "3 of 6 runs finished" in found.facts
    for run in copied.glob("*-seed*"):
        change_result(copied, run.name, status="failed")
    with pytest.raises(ValueError, match="holds no finished run"):
        gather_content(copied)


def test_without_its_corpus_the_rows_are_shown_and_the_rest_says_why(copied: Path, content: ReportContent):
    path = copied.with_name("corpus") / "test.de"
    path.write_text("".join(sorted(path.read_text().splitlines(keepends=True))))
    assert "another than that of the runs" in load_finished(copied, needs_texts=False).no_texts
    shutil.rmtree(copied.with_name("corpus"))
    found = gather_content(copied)
    assert any("no such folder" in line for line in found.unknown)
    for heading in ("BLEU", "seeds [95%]"):
        assert column(found, heading)["rnn"] == column(content, heading)["rnn"] != "–"
    assert column(found, "test set [95%]")["rnn"] == "–"
    assert column(found, "test_long seeds [95%]")["rnn"] != "–"
    assert not [heading for heading in found.results.headings if "combined" in heading]
    assert found.significance.tables == ()
    assert found.sentences == []
    empty = {section.name for section in [*found.sections, found.alignment] if not section.drawings}
    assert empty == {"lengths", "rare-words", "faults", "alignment"}
    assert {"learning", "pareto-params"} <= {d.name for part in found.sections for d in part.drawings}


def test_an_analysis_that_cannot_be_made_says_why(copied: Path):
    (copied / "lstm-seed1" / "metrics.jsonl").unlink()
    found = {section.name: section for section in gather_content(copied).sections}
    assert found["learning-curves"].drawings == []
    assert "metrics.jsonl" in found["learning-curves"].notes[0]
    assert found["lengths"].notes == []


def test_what_compares_badly_is_said(copied: Path):
    change_result(copied, "rnn-seed2", device="another machine", batch_hash="other batches")
    found = unknown(load_finished(copied))
    assert any("device differ" in line for line in found)
    assert any("rows of seed 2 saw different batches" in line for line in found)
    assert "Energy was not read on this machine." in found
    change_result(copied, "rnn-seed2", energy_j_per_1k_tokens=2.0)
    assert "Energy was not read on this machine." not in unknown(load_finished(copied))


# Methods, sentences and tables of analyses.


def test_settings_are_told_apart_and_read_back(experiment: FinishedExperiment, tmp_path: Path):
    found = methods(experiment)
    shared = {row["setting"]: row["value"] for row in cells(found.shared)}
    differing = {row.pop("setting"): list(row.values()) for row in cells(found.differing)}
    assert shared["decode.beam_size"] == "5"
    assert shared["data.src"] == '"en"'
    assert differing["model.dropout"] == ["0.0", "0.1", "0.2"]
    assert differing["model.preset"] == ['"lstm"', '"lstm"', '"transformer"']
    assert not shared.keys() & differing.keys()
    assert "train.seed" not in shared.keys() | differing.keys()
    path = tmp_path / "made.toml"
    path.write_text(found.config)
    singles = [RunFolder.read(experiment.folder / f"{label}-seed1").run for label in experiment.labels]
    assert resolve_models(load_experiment(path)) == singles
    assert found.commands[0] == "attnbench run made.toml --seeds 1,2"


def test_hashes_and_signatures_are_whole(experiment: FinishedExperiment):
    found, last = methods(experiment), experiment.results[-1]
    weights = last.files["checkpoints/final.safetensors"]
    hashes = [last.data_hash, last.batch_hash, last.config_hash, weights, last.code_version]
    assert found.hashes.cells[-1] == ["transformer, seed 2", *hashes]
    conditions = dict(found.conditions)
    assert conditions["BLEU"] == last.bleu_signature
    assert conditions["chrF"] == last.tests["test_long"]["chrf_signature"]
    assert conditions["Hardware"] == "a machine, torch 2.0, 1 threads"


def test_sentences_are_drawn_by_the_seed_and_hold_every_model(experiment: FinishedExperiment):
    assert draw_numbers(1000, 1) == draw_numbers(1000, 1) == sorted(set(draw_numbers(1000, 1)))
    assert len(draw_numbers(1000, 1)) == 20
    assert draw_numbers(1000, 1) != draw_numbers(1000, 2)
    assert draw_numbers(7, 1) == list(range(7))
    found = draw_sentences(experiment, score_tests(experiment), 1)
    assert Counter(sentence.test for sentence in found) == {"test": 20, "test_long": 20}
    corpus = experiment.folder.with_name("made-corpus")
    for sentence in found:
        place = sentence.number - 1
        assert sentence.src == (corpus / f"{sentence.test}.en").read_text().splitlines()[place]
        assert sentence.words == len(sentence.src.split())
        for output in sentence.outputs:
            path = experiment.folder / f"{output.model}-seed1" / f"{sentence.test}.hyp"
            line = path.read_text().splitlines()[place]
            kept = [piece.text for piece in output.pieces if piece.kind != "missing"]
            assert " ".join(kept).split() == line.split()
            assert output.exact == (line == sentence.ref) == (output.chrf == pytest.approx(100))
        assert [output.model for output in sentence.outputs] == ["lstm", "rnn", "transformer"]


@pytest.mark.parametrize(
    ("hypothesis", "reference", "pieces"),
    [
        ("Der Hund schläft.", "Der Hund schläft.", [("same", "Der Hund schläft.", True)]),
        (
            "Der Hund bellt.",
            "Der Hund schläft.",
            [
                ("same", "Der Hund", True),
                ("missing", "schläft", True),
                ("extra", "bellt", True),
                ("same", ".", False),
            ],
        ),
        ("ja, ja", "ja , ja", [("same", "ja, ja", True)]),  # white space is no difference
        ("", "Der Hund", [("missing", "Der Hund", True)]),
    ],
)
def test_differences_worked_out_by_hand(hypothesis: str, reference: str, pieces: list[tuple[str, str, bool]]):
    found = differences(hypothesis, reference)
    assert [(piece.kind, piece.text, piece.spaced) for piece in found] == pieces


WORDS = st.lists(st.sampled_from(["a", "b", "c-d", "e's", ",", ".", "￭", "<b>"]), max_size=9).map(" ".join)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_differences_lose_no_word_of_either_side(hypothesis: str, reference: str):
    pieces = differences(hypothesis, reference)
    for text, kind in ((hypothesis, "extra"), (reference, "missing")):
        own = [word for piece in pieces if piece.kind in ("same", kind) for word in split_words(piece.text)]
        assert own == split_words(text)


def test_a_table_of_an_analysis_leaves_out_what_nobody_knows():
    rows = [{"label": "a", "joules": None}, {"label": "b", "joules": None, "f1": 0.5, "bleu_percent": 2}]
    found = analysis_table(Table("why", [*rows, {"label": "c", "f1": float("nan")}]), "what")
    assert found.headings == ["label", "F1", "BLEU (%)"]
    assert found.numeric == [False, True, True]
    assert found.cells == [["a", "–", "–"], ["b", "0.5", "2"], ["c", "–", "–"]]
    assert [found.columns[1].order(row) for row in found.rows] == [None, 0.5, None]


def test_a_line_is_described_by_its_ends_over_seeds():
    values = [("a", 1, 1.0), ("a", 1, 9.0), ("a", 2, 3.0), ("b", 1, None), ("b", 1, 2.0)]
    rows = [{"label": label, "seed": seed, "bleu": bleu} for label, seed, bleu in values]
    assert first_to_last(rows, "bleu") == "a 2 to 6; b 2 to 2"


def test_speeds_that_nobody_knows_are_not_drawn(copied: Path):
    for lost, drawings in (("train_tokens_per_s", 1), ("beam_sentences_per_s", 1), ("latency_ms_p50", 0)):
        for run in copied.glob("*-seed*"):
            change_result(copied, run.name, **{lost: None})
        found = list(speed(load_finished(copied)))
        assert len(found) == drawings + 1
        assert isinstance(found[-1], ShownTable)


# Attention of trained models.

NUMBERS = [0, 3, 5]


@pytest.fixture(scope="module")
def trained(finished: Path) -> FinishedExperiment:
    """Two models of one seed; a corpus without gold links."""
    return load_finished(finished)


@pytest.fixture(scope="module")
def with_gold(trained: FinishedExperiment) -> FinishedExperiment:
    """The same with the links of a language that is read back to front."""

    def links(pairs: Pairs) -> tuple[str, ...]:
        lengths = (len(line.split()) for line in pairs.src)
        return tuple(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in lengths)

    splits = {name: pairs._replace(links=links(pairs)) for name, pairs in trained.corpus.splits.items()}
    return replace(trained, corpus=replace(trained.corpus, splits=splits))


def test_the_viewer_holds_every_head_in_hundredths(trained: FinishedExperiment, monkeypatch):
    found = attention_viewer(trained, NUMBERS, {})
    assert [model.name for model in found.models] == ["luong, seed 1", "transformer, seed 1"]
    assert found.models[0].heads == ["cross head 0"]
    assert len(found.models[1].heads) == 3  # two heads and their mean
    assert found.models[1].chosen == 2
    pairs = word_pairs(trained.corpus.splits["test"])
    for place, run in enumerate(trained.runs):
        for one in attend_words(load_model(run.folder), [pairs[number] for number in NUMBERS]):
            shown = np.array(found.sentences[one.number].weights[place])
            assert np.abs(shown.reshape(one.weights.shape) / 100 - one.weights).max() <= 0.005
    assert [sentence.number for sentence in found.sentences] == [1, 4, 6]
    assert [sentence.tgt for sentence in found.sentences] == [pairs[number].tgt_words for number in NUMBERS]
    sizes = [len(json.dumps(sentence.weights, separators=(",", ":"))) for sentence in found.sentences]
    monkeypatch.setattr(sentences, "MOST_BYTES", sizes[0] + sizes[1])
    assert attention_viewer(trained, NUMBERS, {}).sentences == found.sentences[:2]


def test_errors_and_gold_links_are_shown_and_the_best_head_first(with_gold: FinishedExperiment):
    section, chosen = alignment(with_gold)
    assert section.notes == []
    assert "diagonal" in section.drawings[0].description
    errors, heads, entropy = (Counter(row["label"] for row in cells(table)) for table in section.tables)
    assert errors["diagonal"] == 1
    assert heads.keys() == entropy.keys() == {"luong", "transformer"}
    found = attention_viewer(with_gold, NUMBERS, chosen)
    for sentence in found.sentences:
        n = len(sentence.src)
        assert sentence.links == [[j, n - 1 - j] for j in range(n)]
    best = {f"{label}, seed {seed}": str(head) for (label, seed), head in chosen.items()}
    assert {model.name: model.heads[model.chosen] for model in found.models} == best
    first = attention_viewer(with_gold, NUMBERS, {("transformer", 1): AttentionHead("cross.0", 0)})
    assert first.models[1].chosen == 0


def test_without_gold_links_or_weights_the_rest_remains(trained: FinishedExperiment, copy: Path):
    section, chosen = alignment(trained)
    assert chosen == {}
    assert [table.title for table in section.tables] == ["Entropy of attention"]
    assert "no gold links" in section.notes[0]
    (copy / "luong-seed1" / "checkpoints" / "final.safetensors").unlink()
    lost, kept = attention_viewer(load_finished(copy), NUMBERS, {}).models
    assert "final.safetensors" in lost.trouble
    assert (kept.trouble, len(kept.heads)) == ("", 3)


# The search that tuned the models.

BLEU = {"lstm": [4.0, 10.0, 1.0], "rnn": [20.0, None, 14.0], "transformer": [3.0, 33.0, 30.0]}
"""Validation BLEU of each trial; None: it diverged."""


def trials(bleu: dict[str, list[float | None]] = BLEU) -> list[TrialResult]:
    return [
        TrialResult(
            label=label,
            trial=number,
            settings={"dropout": (0.3, 0.1, 0.2)[number - 1]},
            status="diverged" if score is None else "done",
            bleu=score,
            loss=None if score is None else 50 - score,
            best_update=None if score is None else 100,
            updates=100,
            seconds=10.0,
            code_version="test",
            reason="NaN" if score is None else None,
        )
        for label, scores in bleu.items()
        for number, score in enumerate(scores, start=1)
    ]


def as_run(each: TrialResult) -> TrialResult:
    return msgspec.structs.replace(each, settings={"dropout": {"lstm": 0.0, "rnn": 0.1}.get(each.label, 0.2)})


def test_the_winners_and_the_effort(experiment: FinishedExperiment, tmp_path: Path):
    write_trials(tmp_path, trials())
    winners, curve = tuning_section(experiment, tmp_path).tables
    names = ("label", "best trial", "dropout", "trials", "failed", "seconds")
    assert [[row[name] for name in names] for row in cells(winners)] == [
        ["lstm", "2", "0.1", "3", "0", "30"],
        ["rnn", "1", "0.3", "3", "1", "30"],
        ["transformer", "2", "0.1", "3", "0", "30"],
    ]
    assert len(curve.rows) == 9


OTHER = "was run with other settings than its best trial: dropout"


@pytest.mark.parametrize(
    ("found", "first", "others"),
    [
        (
            trials(),
            "same random draws",
            [
                f"lstm {OTHER} 0.0 (best trial: 0.1).",
                f"rnn {OTHER} 0.1 (best trial: 0.3).",
                f"transformer {OTHER} 0.2 (best trial: 0.1).",
            ],
        ),
        ([*map(as_run, trials())], "different draws or numbers of updates", []),
        (
            [msgspec.structs.replace(trials()[0], updates=5000), *trials()[1:]],
            "different draws or numbers of updates",
            None,
        ),
        (
            trials({"lstm": [4.0], "rnn": [None, None]}),
            "different numbers of trials",
            [
                f"lstm {OTHER} 0.0 (best trial: 0.3).",
                "rnn: no trial of it ended well, so its settings are not tuned.",
                "transformer: no trial of it ended well, so its settings are not tuned.",
            ],
        ),
    ],
)
def test_effort_and_settings_that_differ_are_named(
    found: list[TrialResult], first: str, others: Any, experiment: FinishedExperiment, tmp_path: Path
):
    write_trials(tmp_path, found)
    notes = tuning_section(experiment, tmp_path).notes
    assert first in notes[0]
    assert others is None or notes[1:] == others


def test_the_page_has_the_section_only_with_trials(
    copied: Path, tmp_path: Path, experiment: FinishedExperiment, refusal: Refusal
):
    """In the experiment's own folder, or in the one that is named; a damaged file is refused or named."""
    assert tuning_section(experiment, None) is None
    search = tmp_path / "search"
    assert str(search / "trials.jsonl") in refusal("report", copied, "-q", "--tuning", search)
    write_trials(search, [])
    assert "holds no trials" in refusal("report", copied, "-q", "--tuning", search)
    write_trials(search, trials())
    assert main(["report", str(copied), "-q", "--tuning", str(search)]) == 0
    named = (copied / "report.html").read_text()
    write_trials(copied, trials())
    assert main(["report", str(copied), "-q"]) == 0
    assert named == (copied / "report.html").read_text()
    assert "<h2>Tuning</h2>" in named
    assert "transformer 22 to 33" in named  # the mean of 3, 33 and 30, and the best
    (copied / "trials.jsonl").write_text(json.dumps({"label": 1}) + "\n")
    section = tuning_section(load_finished(copied), None)
    assert "line 1: not the result of a trial" in section.notes[0]


def test_comparisons_of_the_page_are_those_of_the_api(content: ReportContent, experiment: FinishedExperiment):
    found = compare_models(score_tests(experiment), trials=400)
    rows = [(row["model"], row["against"], row["verdict"]) for row in content.significance.tables[-1].rows]
    assert rows == [(each.first, each.second, each.row["verdict"]) for each in found]
