"""Check of external.json: scores of metrics from outside against the translations and the result."""

from collections.abc import Iterator

from compare.check.findings import ComparedValue, Gap
from compare.check.run_data import CheckedRun
from compare.results.external_file import RecordedScores, read_external
from compare.results.score_columns import external_metrics
from data.text.compression import hash_decompressed
from data.text.lines import read_lines


def check_external(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare what was scored with the translations, and the mean of the segments with the result.

    The segment scores themselves are those of a program outside, or of people.
    """
    scores = read_external(run.folder.external)
    for test, metrics in scores.items():
        for name, recorded in metrics.items():
            yield from _check_metric(run, test, name, recorded)
    known = {name for metrics in scores.values() for name in metrics}
    row = run.result.flat()
    shown = [name for test in ("", *run.result.tests) for name in external_metrics(row, test)]
    for name in dict.fromkeys(shown):
        found = "segment scores" if name in known else "no segment scores"
        yield ComparedValue(run.name, f"{run.folder.external.name}: {name}", "segment scores", found)


def _check_metric(
    run: CheckedRun, test: str, name: str, recorded: RecordedScores
) -> Iterator[ComparedValue | Gap]:
    """Check the scores of one metric on one test set."""
    output, subject = run.folder.output(test), f"{run.folder.external.name}: {name} of {test}"
    if not output.is_file():
        yield ComparedValue(run.name, f"{subject}: translations", recorded.translations, "no such file")
        return
    translations = hash_decompressed(output)
    yield ComparedValue(run.name, f"{subject}: translations", recorded.translations, translations)
    if recorded.translations != translations:
        return
    lines = len(read_lines(output, allow_blank=True))
    yield ComparedValue(run.name, f"{subject}: lines", len(recorded.segments), lines)
    names = run.prepared.corpus.tests if run.prepared is not None else (test,)
    headline = run.result.scores if test == names[0] else {}
    result = run.result.tests.get(test, headline)
    for column, value in recorded.columns(name).items():
        yield ComparedValue(run.name, f"{column} of {test}", result.get(column), value)
    yield Gap(f"the segment scores of {name}, a metric from outside: only their mean", run.name)
