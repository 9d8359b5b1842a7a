"""A metric added to the registry: in ``attnbench score``, results, tables, report and check."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.analysis.finished_experiment import load_finished
from compare.check import check_experiment
from compare.cli import main
from compare.experiment.compute_result import compute_figures, ensure_columns_of_metrics
from compare.experiment.prepare import prepare_data
from compare.report.html.page import result_table
from compare.report.html.sections import methods
from compare.report.result_table import load_table, render_table, write_views
from compare.results.run_folder import RunFolder
from compare.results.store import Result, load_results, read_results, save_result, to_frame
from compare.scoring import (
    METRICS,
    Metric,
    MetricOptions,
    MetricScore,
    all_metrics,
    list_metrics,
    metric_of,
    register_metric,
    score_texts,
)

HYPOTHESES, REFERENCES = ["the cat", "a dog sleeps"], ["the dog", "a dog sleeps"]


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


def changed(**attributes: str) -> Metric:
    """An ``ExactMatch`` with other class attributes."""
    metric = ExactMatch()
    for name, value in attributes.items():
        setattr(metric, name, value)
    return metric


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The built-in metrics of every result and this one; the registry is as before at the end."""
    saved = dict(METRICS)
    METRICS.clear()
    METRICS.update({name: saved[name] for name in ("bleu", "chrf", "ter")}, exact=ExactMatch())
    yield
    METRICS.clear()
    METRICS.update(saved)


def test_the_longest_name_that_a_column_begins_with_is_its_metric():
    METRICS["exact_ci"] = changed(name="exact_ci")
    expected = {
        **{"ter": "ter", "ter_signature_test_long": "ter", "bleu_ci_low": "bleu", "exact_test": "exact"},
        **{"exact_ci_signature_long": "exact_ci", "exact_ci": "exact_ci", "exact_signature_long": "exact"},
        **{"terms": None, "seed": None},
    }
    assert {column: metric_of(column) for column in expected} == {
        column: METRICS[name] if name else None for column, name in expected.items()
    }
    assert [metric.higher_is_better for metric in METRICS.values()] == [True, True, False, True, True]


def test_it_is_computed_beside_the_others():
    scores = score_texts(HYPOTHESES, REFERENCES, scoring=all_metrics(), n_bootstrap=2)
    assert scores.scores == {"exact": 50.0, "exact_signature": "exact|v:1"}
    assert None not in scores.columns().values()
    assert str(scores).splitlines()[3] == "exact 50.000  exact|v:1"
    assert score_texts(HYPOTHESES, REFERENCES, n_bootstrap=2).scores == {}
    result = Result(label="a", preset="lstm", seed=1, status="done", tests={"long": scores.columns()})
    assert to_frame([result])["exact_long"].tolist() == [50.0]


def test_the_command_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Callable[..., str]
):
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    hypotheses, references = str(tmp_path / "hyp"), str(tmp_path / "ref")
    assert main(["score", hypotheses, "--ref", references, "-m", "exact"]) == 0
    assert capsys.readouterr().out == "exact 50.000  exact|v:1\ndifferent lines 1.000\n"
    assert main(["score", hypotheses, "--ref", references, "-m", "exact", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["exact"], record["exact_signature"], record["bleu"]) == (50.0, "exact|v:1", None)
    assert main(["score", hypotheses, references, "--ref", references, "-m", "exact,bleu", "-lc"]) == 0
    table = capsys.readouterr().out
    head, *rows = [re.split("  +", line) for line in table.splitlines()[:3]]
    assert head == ["system", "BLEU", "[95%]", "exact", "exact [95%]", "length ratio"]
    assert [row[3:5] for row in rows] == [["50", "[49.000, 51.000]"], ["100", "[99.000, 101.000]"]]
    assert "\nexact: exact|v:1\n" in table
    message = refusal("score", hypotheses, "--ref", references, "-m", "comet")
    assert message == "unknown metric 'comet': choose from bleu, chrf, ter, exact"


@pytest.mark.usefixtures("without_plots")
def test_results_tables_report_and_check_hold_it(copy: Path):
    """After every figure of the tiny experiment has been computed again."""
    results = read_results(copy)
    runs = [RunFolder.read(copy / result.run) for result in results]
    prepared = prepare_data(runs[0].run, copy.with_name("encoded"))
    for run, result in zip(runs, results, strict=True):
        save_result(run.folder, replace(result, **compute_figures(run, prepared.for_seed(result.seed))))
    write_views(copy)

    first = read_results(copy)[0]
    exact = first.scores["exact"]
    table = render_table(load_results(copy))
    assert "|   exact |" in table.splitlines()[0]
    assert f"|    {exact:.2f} |" in table.splitlines()[2]
    assert "- exact: exact|v:1\n" in table
    assert f" {exact:.2f} |" in render_table(load_table([copy], "aggregated")).splitlines()[2]
    loaded = load_finished(copy)
    (column,) = [column for column in result_table(loaded, {}, [], "").columns if column.heading == "exact"]
    row = loaded.results[0].flat()
    assert (column.text(row), column.order(row), column.help) == (f"{exact:.2f}", exact, ExactMatch.help)
    assert ("exact", "exact|v:1") in methods(loaded).conditions

    assert not check_experiment(copy).differences
    path = copy / first.run / "result.json"
    record = json.loads(path.read_text())
    record["scores"]["exact"] += 1
    path.write_text(json.dumps(record))
    differences = check_experiment(copy).differences
    assert (first.run, "exact") in {(value.context, value.name) for value in differences}


def test_a_metric_is_registered_once_and_whole():
    register_metric(changed(name="exact_2"))
    assert list_metrics() == ["bleu", "chrf", "ter", "exact", "exact_2"]
    for metric, message in (
        (ExactMatch(), "the metric 'exact' exists already: choose another name"),
        (ExactMatch, "a metric must be an instance of a subclass of Metric, found <class "),
        (changed(name="Exact"), "metric 'Exact': use only lower-case letters"),
        (changed(name="warnings"), "the metric 'warnings' exists already"),
    ):
        with pytest.raises(ValueError, match=message):
            register_metric(metric)  # type: ignore[arg-type]
    register_metric(changed(name="epochs"))
    with pytest.raises(ValueError, match="column 'epochs' already exists: rename the metric"):
        ensure_columns_of_metrics()
