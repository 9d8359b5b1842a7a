"""The README of a published experiment: what it is, where it comes from, how to show and check it."""

from collections.abc import Iterable, Sequence

from compare.experiment.task import task_of
from compare.results.markdown import escape_markdown
from compare.results.run_folder import RunFolder
from compare.results.store import Result

EXPERIMENT = "experiment.toml"
"""The file of a published folder with the settings of all models."""
NOTE = """# {name}

Results of an experiment{with_translations}, published by `attnbench publish`. There are no weights.

- Corpus: {corpus}
- Runs: {runs}
- Made with: {conditions}
- Made again by: `attnbench run {experiment} --seeds {seeds}{root} --out OUT`

Each run has its settings (`config.toml`), training log (`metrics.jsonl`), raw timings (`speed.json`), result
(`result.json`, with the sha256 of every file's content), vocabularies{and_translations} (`.gz`), and where
they were measured the likelihood of the references (`perplexity.json`) and scores by metrics from outside
(`external.json`). Ensembles of runs, if there are any, have theirs in `ensembles`.
{missing}{where}In this folder:

    attnbench table .
    attnbench check .{root}
    attnbench report .{root} --out report.html
{score}"""
MISSING = """Until the runs that are left out have ended and been published, `attnbench check` reports them
as missing and exits with 1.
"""


def source_note(
    name: str,
    results: Sequence[Result],
    runs: Sequence[RunFolder],
    corpus: str,
    left_out: Sequence[str] = (),
) -> str:
    """Write the README of a published folder.

    Args:
        name: the name of the folder.
        results: the results of all runs.
        runs: the folders of those that have begun.
        corpus: the name of the corpus; empty: the built-in one.
        left_out: names of the runs that had not ended and are not in the folder.
    """
    data, (first_test, *_) = runs[0].run.data, [*runs[0].tests, "test"]
    hashes = "".join(f"; sha256 {value}" for value in _distinct(results, "data_hash"))
    score = f"    attnbench score {runs[0].name}/{first_test}.hyp.gz --ref FOLDER/{first_test}.{data.tgt}\n"
    translates = task_of(runs[0].run).translates
    where = "FOLDER is your copy of the corpus, whose sha256 must be the one above. "
    return NOTE.format(
        name=escape_markdown(name),
        corpus=f"{escape_markdown(corpus) or 'built in'}, {data.src} to {data.tgt}{hashes}",
        runs=", ".join([_count_runs(results), *(f"{run} not ended, left out" for run in left_out)]),
        conditions=escape_markdown(", ".join(_conditions(results))),
        experiment=EXPERIMENT,
        seeds=",".join(_distinct(results, "seed")),
        root=" --set data.root=FOLDER" if corpus else "",
        missing=MISSING if left_out else "",
        where=where if corpus else "",
        with_translations=" with its translations" if translates else "",
        and_translations=" and translations" if translates else "",
        score=score if corpus and translates else "",
    )


def _count_runs(results: Sequence[Result]) -> str:
    """Count runs, models and seeds, and name the runs without a figure."""
    labels, seeds = _distinct(results, "label"), _distinct(results, "seed")
    others = [f"{result.run} {result.status}" for result in results if result.status != "done"]
    return ", ".join([f"{len(results)} ({', '.join(labels)}; seeds {', '.join(seeds)})", *others])


def _conditions(results: Sequence[Result]) -> list[str]:
    """List code versions, devices and what else speeds depend on."""
    return [
        *(f"attnbench {version}" for version in _distinct(results, "code_version")),
        *(f"torch {version}" for version in _distinct(results, "torch")),
        *_distinct(results, "device"),
        *(f"{threads} threads" for threads in _distinct(results, "threads")),
        *_distinct(results, "precision"),
        *(f"settings {value[:12]}" for value in _distinct(results, "settings_hash")),
    ]


def _distinct(results: Iterable[Result], field: str) -> list[str]:
    """List the known values of a field once each."""
    values = (getattr(result, field) for result in results)
    return list(dict.fromkeys(str(value) for value in values if value is not None))
