"""A metric added to the registry: in ``attnbench score``, results, tables, report and check."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.analysis.finished_experiment import load_finished
from compare.check.recompute import check_experiment
from compare.cli import main
from compare.experiment.compute_result import compute_figures
from compare.experiment.prepare import prepare_data
from compare.report.html.results import columns_of, result_table
from compare.report.html.sections import methods
from compare.report.table import load_table, render_table
from compare.report.views import SUFFIX
from compare.results.run_folder import RunFolder
from compare.results.store import (
    Result,
    load_results,
    read_results,
    save_result,
    to_frame,
    write_json_lines,
)
from compare.scoring.metrics import (
    METRICS,
    Metric,
    MetricOptions,
    MetricScore,
    list_metrics,
    metric_of,
    register_metric,
)
from compare.scoring.score import SystemScores, all_metrics, score_texts
from tests.kits.report import change_result, write_experiment

HYPOTHESES, REFERENCES = ["the cat", "a dog sleeps"], ["the dog", "a dog sleeps"]
FURTHER = {name: metric for name, metric in METRICS.items() if name not in ("bleu", "chrf", "ter")}
"""Metrics that were added to the built-in ones; these tests do without them."""


class ExactMatch(Metric):
    """Share of lines that equal their reference."""

    name = "exact"
    heading = "exact"
    help = "share of exact translations"
    decimals = 2

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score."""
        share = sum(map(str.__eq__, hypotheses, references[0])) / len(hypotheses)
        interval = (100 * share - 1, 100 * share + 1) if options.lowercase else None
        return MetricScore(score=100 * share, signature="exact|v:1", interval=interval)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The registry has its metrics in their order again at the end."""
    saved = dict(METRICS)
    for name in FURTHER:
        del METRICS[name]
    METRICS["exact"] = ExactMatch()
    yield
    METRICS.clear()
    METRICS.update(saved)


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return [str(tmp_path / "hyp"), str(tmp_path / "ref")]


@pytest.fixture
def scored(copy: Path) -> Path:
    """The tiny experiment with every figure computed again while the metric is registered."""
    results = read_results(copy)
    runs = [RunFolder.read(copy / result.run) for result in results]
    prepared = prepare_data(runs[0].run, copy.with_name("encoded"))
    for run, result in zip(runs, results, strict=True):
        figures = compute_figures(run, prepared.for_seed(result.seed))
        save_result(run.folder, replace(result, **figures))
    write_json_lines(copy)
    for form, suffix in SUFFIX.items():
        (copy / f"table.{suffix}").write_text(render_table(read_results(copy), form), encoding="utf-8")
    return copy


def test_built_in_metrics_are_registered_under_their_names_and_come_first():
    assert list(METRICS) == ["bleu", "chrf", "ter", "exact"]
    assert all(name == metric.name for name, metric in METRICS.items())
    assert [metric.higher_is_better for metric in METRICS.values()] == [True, True, False, True]


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("ter", "ter"),
        ("ter_signature_test_long", "ter"),
        ("bleu_ci_low", "bleu"),
        ("exact_test", "exact"),
        ("terms", None),
        ("seed", None),
    ],
)
def test_columns_belong_to_metrics(column: str, name: str | None):
    assert metric_of(column) is (METRICS[name] if name else None)


@pytest.mark.parametrize("names", [("exact", "exact_ci"), ("exact_ci", "exact")])
def test_of_metrics_whose_names_begin_alike_the_longest_has_the_column(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(METRICS, "exact")
    for name in names:
        monkeypatch.setitem(METRICS, name, changed(name=name))
    assert metric_of("exact_ci_signature_long") is METRICS["exact_ci"]
    assert metric_of("exact_ci") is METRICS["exact_ci"]
    assert metric_of("exact_signature_long") is METRICS["exact"]


def test_it_is_computed_beside_the_others():
    scores = score_texts(HYPOTHESES, REFERENCES, scoring=all_metrics(), n_bootstrap=2)
    assert scores.scores == {"exact": 50.0, "exact_signature": "exact|v:1"}
    assert None not in scores.columns().values()
    assert str(scores).splitlines()[3] == "exact 50.000  exact|v:1"
    assert score_texts(HYPOTHESES, REFERENCES, n_bootstrap=2).scores == {}


def test_the_command_prints_it(texts: list[str], capsys: pytest.CaptureFixture[str]):
    hypotheses, references = texts
    assert main(["score", hypotheses, "--ref", references, "-m", "exact"]) == 0
    assert capsys.readouterr().out == "exact 50.000  exact|v:1\n"
    assert main(["score", hypotheses, "--ref", references, "-m", "exact", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["exact"], record["exact_signature"], record["bleu"]) == (50.0, "exact|v:1", None)
    assert main(["score", hypotheses, references, "--ref", references, "-m", "exact,bleu", "-lc"]) == 0
    table = capsys.readouterr().out
    head, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[:4]]
    assert head == ["system", "BLEU", "[95%]", "exact", "exact [95%]", "length ratio"]
    assert [row[3:5] for row in rows[1:]] == [["50", "[49.000, 51.000]"], ["100", "[99.000, 101.000]"]]
    assert table.endswith("- exact: exact|v:1\n")


def test_the_help_and_the_refusal_name_it(
    texts: list[str], capsys: pytest.CaptureFixture[str], refusal: Callable[..., str]
):
    assert main(["score", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "Some of bleu,chrf,ter (slow),exact [default: bleu,chrf]." in help_text
    message = refusal("score", texts[0], "--ref", texts[1], "-m", "comet")
    assert message == "no 'comet' here: choose from bleu, chrf, ter, exact"


def test_results_tables_and_the_check_hold_it(scored: Path):
    run = read_results(scored)[0].run
    record = json.loads((scored / run / "result.json").read_text())
    assert list(record["scores"].items())[1:] == [("exact_signature", "exact|v:1")]
    frame = load_results(scored)
    assert frame["exact"].tolist() == [result.scores["exact"] for result in read_results(scored)]
    table = render_table(frame)
    assert "|   exact |" in table.splitlines()[0]
    assert f"|    {record['scores']['exact']:.2f} |" in table.splitlines()[2]
    assert "- exact: exact|v:1\n" in table
    assert "exact" in render_table(frame, "csv").splitlines()[0].split(",")

    assert not check_experiment(scored).differences
    record["scores"]["exact"] += 1
    (scored / run / "result.json").write_text(json.dumps(record))
    differences = check_experiment(scored).differences
    assert (run, "exact") in {(value.context, value.name) for value in differences}


def test_means_over_seeds_and_the_report_hold_it(scored: Path):
    exact = read_results(scored)[0].scores["exact"]
    assert f" {exact:.2f} |" in render_table(load_table([scored], "aggregated")).splitlines()[2]
    loaded = load_finished(scored)
    columns = {column.heading: column for column, _ in columns_of(loaded, [], "")}
    row = loaded.results[0].flat()
    assert (columns["exact"].text(row), columns["exact"].order(row)) == (f"{exact:.2f}", exact)
    assert columns["exact"].help == "share of exact translations"
    assert ("exact", "exact|v:1") in methods(loaded).conditions
    assert [name for name, _ in methods(loaded).conditions][:4] == ["BLEU", "chrF", "TER", "exact"]


def test_results_of_before_its_registration_are_right(copy: Path, monkeypatch: pytest.MonkeyPatch):
    for name, metric in FURTHER.items():  # the experiment was run with them
        monkeypatch.setitem(METRICS, name, metric)
    assert all("exact" not in result.flat() for result in read_results(copy))
    assert not check_experiment(copy).differences


def test_rows_with_other_signatures_are_refused():
    result = Result(label="a", preset="lstm", seed=1, status="done", scores={"exact_signature": "v:1"})
    other = replace(result, scores={"exact_signature": "v:2"})
    with pytest.raises(ValueError, match="exact is comparable under one signature only, found v:1 and v:2"):
        render_table([result, other])


def test_further_test_sets_have_a_column_of_it():
    scores: SystemScores = score_texts(HYPOTHESES, REFERENCES, scoring=all_metrics(), n_bootstrap=2)
    result = Result(label="a", preset="lstm", seed=1, status="done", tests={"long": scores.columns()})
    assert Result.from_json(result.to_json()) == result
    assert to_frame([result])["exact_long"].tolist() == [50.0]


def test_a_metric_cannot_take_the_column_of_something_else():
    result = Result(label="a", preset="lstm", seed=1, status="done", scores={"params": 1.0})
    with pytest.raises(ValueError, match="a metric cannot have the column 'params'"):
        result.flat()


def test_a_result_without_further_metrics_is_written_as_before():
    result = Result(label="a", preset="lstm", seed=1, status="done")
    assert "scores" not in json.loads(result.to_json())


def test_a_mean_over_seeds_of_which_one_lacks_it_is_unknown(tmp_path: Path):
    folder = write_experiment(tmp_path / "made", labels=["lstm"], seeds=[1, 2])
    change_result(folder, "lstm-seed1", scores={"exact": 12.5, "exact_signature": "exact|v:1"})
    table = result_table(load_finished(folder), {}, [], "")
    (column,) = (each for each in table.columns if each.heading == "exact")
    (model,) = table.rows
    assert [column.text(row) for row in (model, *model["runs"])] == ["–", "12.50", "–"]


def changed(**attributes: str) -> Metric:
    """An ``ExactMatch`` with other class attributes."""
    metric = ExactMatch()
    for name, value in attributes.items():
        setattr(metric, name, value)
    return metric


def test_a_metric_is_registered_once_and_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("compare.scoring.metrics.METRICS", dict(METRICS))
    register_metric(changed(name="exact_2"))
    assert list_metrics() == [*METRICS, "exact_2"]
    for metric, message in (
        (ExactMatch(), "the metric 'exact' exists already: choose another name"),
        (ExactMatch, r"ExactMatch is a class: register an instance, ExactMatch\(\)"),
        (len, "a metric must be an instance of a subclass of Metric, found <built-in function len>"),
        (changed(name="Exact"), "metric 'Exact': a name has only lower-case letters"),
        (changed(name="exact3", heading=""), "ExactMatch has no heading: set it in the class"),
    ):
        with pytest.raises(ValueError, match=message):
            register_metric(metric)


def test_one_string_is_not_a_list_of_lines():
    with pytest.raises(ValueError, match="expected a list of lines, found one string: 'the cat'"):
        score_texts("the cat", ["the cat"])
    with pytest.raises(ValueError, match="expected a list of lines, found one string: 'the cat'"):
        score_texts(["the cat"], "the cat")
