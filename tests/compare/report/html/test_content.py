"""Content of the report for a whole experiment, and for one with missing parts."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from compare.analysis.significance.scored_tests import score_tests
from compare.report.html import significance
from compare.report.html.content import ReportContent, gather_content, unknown
from compare.report.html.load import load_for_report
from compare.results.store import Result
from tests.kits.report import change_result, write_experiment


@pytest.fixture(scope="module", autouse=True)
def few_trials():
    """As many shuffles as three comparisons need; with 10,000 these tests take a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "TRIALS", 200)
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
    assert "▲" not in "".join(column(single, "against transformer").values())
    assert "cannot be said to beat" in single.summary[0]


def test_models_are_set_against_the_best_or_the_baseline(content: ReportContent, made: Path):
    assert content.results.reference == "transformer"  # each model of the kit is better than the one before
    against = column(content, "against transformer")
    assert against["transformer"] == "itself"
    assert against["lstm"].startswith("▼ −")
    other = gather_content(made, baseline="lstm")
    assert column(other, "against lstm")["transformer"] == against["lstm"].replace("▼ −", "▲ +")
    with pytest.raises(ValueError, match="no finished model is labelled 'lsmt'; did you mean 'lstm'"):
        gather_content(made, baseline="lsmt")


def test_the_matrix_is_the_same_from_both_sides(content: ReportContent):
    assert content.significance.matrix is not None
    labels, turned = [row[0].text for row in content.significance.matrix.rows], {"▲": "▼", "▼": "▲", "≈": "≈"}
    assert labels == [head.text for head in content.significance.matrix.heads[1:]]
    for i in range(len(labels)):
        assert content.significance.matrix.rows[i][i + 1].text == ""
        for j in range(i):
            one, other = (content.significance.matrix.rows[a][b + 1] for a, b in ((i, j), (j, i)))
            assert one.order == -other.order
            assert one.text[0] == turned[other.text[0]]


def test_where_pairs_are_too_many_one_model_is_set_against_each(made: Path, monkeypatch):
    scored = score_tests(load_for_report(made).finished)["test"]
    monkeypatch.setattr(significance, "MOST_TESTS", 5)  # three pairs of two seeds each are six
    some = significance.run_comparisons(scored, "rnn")
    assert [(each.first, each.second) for each in some] == [("lstm", "rnn"), ("transformer", "rnn")]
    shown = significance.significance(some, list(scored.models), "test")
    assert shown.matrix is None
    assert len(shown.details.rows) == 2
    monkeypatch.setattr(significance, "MOST_TESTS", 6)
    assert len(significance.run_comparisons(scored, "rnn")) == 3


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
    assert column(found, "BLEU")["rnn"] == column(content, "BLEU")["rnn"].split(" ±")[0]
    assert found.significance.matrix is None
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
