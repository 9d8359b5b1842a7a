"""Content of the report for a whole experiment, and for one with missing parts."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from compare.analysis.comparison import comparison_matrix, smallest_differences
from compare.analysis.intervals import match_runs, score_tests
from compare.report.html import results as significance
from compare.report.html.page import ReportContent, gather_content, unknown
from compare.report.loaded_experiment import load_for_report
from compare.results.store import Result
from tests.kits.report import change_result, write_experiment


@pytest.fixture(scope="module", autouse=True)
def few_trials():
    """As many trials as the comparisons need; with 10,000 these tests take longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "TRIALS", 400)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("report") / "made")


@pytest.fixture(scope="module")
def content(made: Path) -> ReportContent:
    return gather_content(made)


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The experiment, to be changed, with a corpus of its own."""
    shutil.copytree(made.with_name("made-corpus"), tmp_path / "corpus")
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    for config in folder.glob("*/config.toml"):
        text = config.read_text().replace(made.with_name("made-corpus").as_posix(), f"{tmp_path}/corpus")
        config.write_text(text)
    return folder


def result(folder: Path, run: str) -> Result:
    return Result.from_json((folder / run / "result.json").read_bytes())


def test_means_of_scores_with_two_signatures_are_refused(copied: Path):
    run = sorted(path.parent.name for path in copied.glob("*/result.json"))[0]
    change_result(copied, run, bleu_signature="other")
    with pytest.raises(ValueError, match="comparable under one signature only"):
        gather_content(copied)


def column(content: ReportContent, heading: str) -> dict[str, str]:
    """A column of the result table, by model."""
    place = [head.text for head in content.results.heads].index(heading)
    return {row.label: row.cells[place].text for row in content.results.rows}


def test_it_is_plain_values_that_json_can_hold(content: ReportContent):
    assert json.loads(json.dumps(asdict(content)))["title"] == "made"


def test_the_table_holds_means_over_seeds_and_each_run(content: ReportContent, made: Path):
    scores = [result(made, f"rnn-seed{seed}").bleu for seed in (1, 2)]
    assert column(content, "BLEU")["rnn"] == f"{fmean(scores):.1f} ± {stdev(scores):.1f}"
    runs = dict(content.results.rows[1].runs)
    assert [runs[f"seed {seed}"][0].text for seed in (1, 2)] == [f"{score:.1f}" for score in scores]
    assert [runs[f"seed {seed}"][0].order for seed in (1, 2)] == scores
    one = result(made, "rnn-seed2")
    assert runs["seed 2"][1].text == f"[{one.bleu_ci_low:.1f}, {one.bleu_ci_high:.1f}]"


def test_several_seeds_have_three_intervals_one_seed_has_one(content: ReportContent, tmp_path: Path):
    named = {head.text for head in content.results.heads}
    assert {"test set [95%]", "seeds [95%]", "combined [95%]", "test_long combined [95%]"} <= named
    single = gather_content(write_experiment(tmp_path / "single", seeds=[1]))
    named = {head.text for head in single.results.heads}
    assert {"test set [95%]", "test_long test set [95%]"} <= named
    assert not {"seeds [95%]", "combined [95%]"} & named
    assert "Every model ran with one seed: what other seeds would give is not known." in single.unknown
    against = "".join(column(single, "against transformer").values())
    assert "▽ −" in against
    assert not set("▲▼≈") & set(against)
    assert re.match(r"transformer is \d+\.\d BLEU ahead of rnn \(p = 0.03\): ", single.summary[0])
    assert "ahead of lstm" in single.summary[1]
    assert all(": significant on this test set, with one seed." in text for text in single.summary)


def test_models_are_set_against_the_best_or_the_baseline(content: ReportContent, made: Path):
    assert content.results.reference == "transformer"  # each model of the kit is better than the one before
    against = column(content, "against transformer")
    assert against["transformer"] == "itself"
    assert against["lstm"].startswith("▼ −")
    other = gather_content(made, baseline="lstm")
    assert column(other, "against lstm")["transformer"] == against["lstm"].replace("▼ −", "▲ +")
    with pytest.raises(ValueError, match="no finished model is labelled 'lsmt'; did you mean 'lstm'"):
        gather_content(made, baseline="lsmt")


def test_every_test_set_and_metric_has_a_matrix_the_same_from_both_sides(content: ReportContent):
    titles = [matrix.title for matrix in content.significance.matrices]
    metrics_and_tests = [(metric, test) for test in ("test", "test_long") for metric in ("BLEU", "chrF")]
    assert titles == [f"Differences in {metric} on {test}" for metric, test in metrics_and_tests]
    turned = {"▲": "▼", "▼": "▲", "+": "−", "−": "+"}
    for matrix in content.significance.matrices:
        labels = [row[0].text for row in matrix.rows]
        assert labels == [head.text for head in matrix.heads[1:]] == ["lstm", "rnn", "transformer"]
        for i in range(len(labels)):
            assert matrix.rows[i][i + 1].text == ""
            for j in range(i):
                one, other = (matrix.rows[a][b + 1] for a, b in ((i, j), (j, i)))
                assert one.order == -other.order
                assert one.text[0] == turned[other.text[0]]


def test_every_test_set_has_its_verdicts_in_the_table(content: ReportContent, made: Path):
    comparisons = significance.run_comparisons(score_tests(load_for_report(made).finished), "transformer")
    for test, heading in (("test", "against transformer"), ("test_long", "test_long against transformer")):
        of_test = [each for each in comparisons if (each.test, each.metric) == (test, "bleu")]
        side = comparison_matrix(of_test)["rnn"]["transformer"]
        assert column(content, heading)["rnn"] == significance.verdict(side).text
    assert len(content.significance.details.rows) == len(comparisons) == 12
    assert "for all 12 comparisons" in content.significance.notes[1]


def test_the_smallest_difference_that_could_be_found_stands_in_one_line(content: ReportContent, made: Path):
    found = smallest_differences(match_runs(score_tests(load_for_report(made).finished)), 12)
    (line,) = (note for note in content.significance.notes if note.startswith("Smallest true difference"))
    assert "a probability of 80%" in line
    assert f": {found['test', 'bleu']:.1f} BLEU and {found['test', 'chrf']:.1f} chrF on test, " in line


def test_the_summary_names_every_model(content: ReportContent):
    for label, sentence in zip(("rnn", "lstm"), content.summary, strict=True):
        assert sentence.startswith("transformer ")
        assert f" {label} " in sentence


def test_models_of_different_settings_are_not_compared(copied: Path):
    change_result(copied, "rnn-seed1", settings_hash="a" * 64)
    found = gather_content(copied)
    (note,) = found.significance.notes
    assert "lstm-seed1 and rnn-seed1 were trained or decoded with different settings" in note
    assert found.significance.matrices == ()
    assert found.summary == ["The models were not compared: see below."]
    assert found.results.reference == ""
    assert not [head.text for head in found.results.heads if "against" in head.text]
    assert any("settings" in line for line in found.unknown)


def test_runs_without_a_hash_are_compared_by_their_configs(copied: Path):
    """Taking the hash out of every row hides no difference."""
    for run in copied.glob("*-seed*"):
        change_result(copied, run.name, settings_hash=None)
    assert gather_content(copied).significance.matrices
    config = copied / "rnn-seed1" / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("[train]", "[train]\nclip_norm = 3.0"))
    assert config.read_text() != text
    (note,) = gather_content(copied).significance.notes
    assert "were trained or decoded with different settings" in note


def test_where_pairs_are_too_many_one_model_is_set_against_each(made: Path, monkeypatch):
    scored = score_tests(load_for_report(made).finished)
    monkeypatch.setattr(significance, "MOST_COMPARISONS", 11)  # three pairs, two metrics, two test sets
    some = significance.run_comparisons(scored, "rnn")
    assert [(each.first, each.second) for each in some[:2]] == [("lstm", "rnn"), ("transformer", "rnn")]
    shown = significance.significance(some, ["lstm", "rnn", "transformer"])
    assert shown.matrices == ()
    assert len(shown.details.rows) == 8
    monkeypatch.setattr(significance, "MOST_COMPARISONS", 12)
    assert len(significance.run_comparisons(scored, "rnn")) == 12


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
    assert [run[1][-1].text for run in found.results.rows[1].runs] == ["done", "failed: loss became NaN"]
    assert column(found, "BLEU")["lstm"] == "–"
    assert "rnn, seed 2: failed (loss became NaN)" in found.unknown
    assert "lstm, seed 1: unfinished" in found.unknown
    assert "rnn ran with one seed: what other seeds would give is not known." in found.unknown
    assert "3 of 6 runs finished" in found.facts


def test_without_its_corpus_the_rows_are_shown_and_the_rest_says_why(copied: Path, content: ReportContent):
    shutil.rmtree(copied.with_name("corpus"))
    found = gather_content(copied)
    assert any("no such folder" in line for line in found.unknown)
    assert column(found, "BLEU")["rnn"] == column(content, "BLEU")["rnn"]
    assert column(found, "seeds [95%]")["rnn"] == column(content, "seeds [95%]")["rnn"] != "–"
    assert column(found, "test set [95%]")["rnn"] == "–"
    assert column(found, "test_long seeds [95%]")["rnn"] != "–"
    assert not [head.text for head in found.results.heads if "combined" in head.text]
    assert found.significance.matrices == ()
    assert found.sentences == []
    empty = {section.name for section in [*found.sections, found.alignment] if not section.drawings}
    assert empty == {"lengths", "rare-words", "faults", "alignment"}
    assert {"learning", "pareto-params"} <= {d.name for part in found.sections for d in part.drawings}


def test_another_corpus_of_the_same_size_is_noticed(copied: Path):
    path = copied.with_name("corpus") / "test.de"
    path.write_text("".join(sorted(path.read_text().splitlines(keepends=True))))
    assert "another than that of the runs" in str(load_for_report(copied).no_texts)


def test_nothing_finished_is_an_error(copied: Path):
    for run in copied.glob("*-seed*"):
        change_result(copied, run.name, status="failed")
    with pytest.raises(ValueError, match="holds no finished run"):
        gather_content(copied)


def test_an_analysis_that_cannot_be_made_says_why(copied: Path):
    (copied / "lstm-seed1" / "metrics.jsonl").unlink()
    found = {section.name: section for section in gather_content(copied).sections}
    assert found["learning-curves"].drawings == []
    assert "metrics.jsonl" in found["learning-curves"].notes[0]
    assert found["lengths"].notes == []


def test_what_compares_badly_is_said(copied: Path):
    change_result(copied, "rnn-seed2", device="another machine", batch_hash="other batches")
    found = unknown(load_for_report(copied))
    assert any("device differ" in line for line in found)
    assert any("rows of seed 2 saw different batches" in line for line in found)
    loaded = load_for_report(copied)
    read = [
        replace(run, result=replace(run.result, energy_j_per_1k_tokens=2.0)) for run in loaded.finished.runs
    ]
    known = replace(loaded, finished=replace(loaded.finished, runs=tuple(read)))
    assert "Energy was not read on this machine." in found
    assert "Energy was not read on this machine." not in unknown(known)
