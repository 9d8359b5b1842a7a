"""Check of the figures of a run: result, timings, likelihoods, scores from outside."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compare.check.run_data import CheckedRun, ComparedValue, Gap
from compare.experiment.compute_result import compute_figures, size_figures
from compare.experiment.likelihood import count_characters
from compare.experiment.run import unfinished_result
from compare.experiment.task import task_of
from compare.experiment.timing import Figures, speed_figures
from compare.results.columns import external_metrics
from compare.results.records import Timings, read_likelihoods, read_speed
from compare.results.result import SETTINGS, Result
from compare.results.run_folder import RecordedScores, read_external
from compare.scoring.metrics import metric_of
from compare.system.device import Machine
from compare.training.serialization import WEIGHTS
from data.files import hash_file
from data.text import hash_decompressed, read_lines
from data.vocabulary import UNK, load_pair

# Check of a result record: every field against the config, the data, the log, the timings and the texts.


MACHINE = tuple(item.name for item in dataclasses.fields(Machine))
NOT_DERIVED = (
    *MACHINE,
    "recurrent_precision",
    "code_version",
    "status",
    "reason",
    "tests",
    "scores",
    "files",
)
"""Fields of a result that has begun which config and data do not determine."""
DAMAGE = (ValueError, LookupError, TypeError, ArithmeticError, OSError)
"""What a damaged file can raise."""
FIELDS = frozenset(item.name for item in dataclasses.fields(Result))


def check_name(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare label and seed of the config with the name of the folder."""
    yield ComparedValue(run.name, "label and seed in config.toml", run.folder.run.name, run.name)


def check_result(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare every field of a run's result with its value by config, data and files.

    Where the figures cannot be computed, a single value named "figures" holds the error message.
    """
    begun = dataclasses.asdict(unfinished_result(run.folder, run.prepared))
    derived = {name: value for name, value in begun.items() if value is not None and name not in NOT_DERIVED}
    derived |= {name: begun[name] for name in (*SETTINGS, "reproducible")}
    recorded = run.result.flat()
    if run.result.status == "done":
        try:
            figures = _figures(run)
            known = dataclasses.replace(run.result, **derived, **figures).flat()
            if run.prepared is None:
                derived |= {name: known[name] for name in figures}
            else:  # with the scores of test sets that the corpus does not have
                derived = dict.fromkeys(recorded) | known
        except DAMAGE as error:
            yield ComparedValue(run.name, "figures", "done", str(error))
    for name, value in derived.items():
        finding = ComparedValue(run.name, name, recorded.get(name), value)
        if finding.recorded is None and not finding.same and _is_optional(name):
            yield Gap(f"{name}, which was registered later", run.name)
        else:
            yield finding


def check_status(run: CheckedRun) -> Iterator[ComparedValue]:
    """Report a run that is not done, although its files say that it is.

    A run that failed diverged in training, so its log has no final line.
    """
    status = run.result.status
    if task_of(run.folder.run).translates:
        tested = any(name.endswith(".hyp") for name in run.folder.files())
    else:
        tested = run.folder.likelihoods.exists()
    ended = run.final is not None and (status == "failed" or (tested and run.folder.speed.exists()))
    yield ComparedValue(run.name, "status", status, "done" if ended else status)
    if status != "unfinished":  # lack of memory is a reason to be unfinished
        reason = "no reason" if run.result.reason is None else "a reason"
        expected = "a reason" if status == "failed" else "no reason"
        yield ComparedValue(run.name, "reason of a failure", reason, expected)


def _figures(run: CheckedRun) -> Figures:
    """Compute all figures of the run; without its corpus those of its size and speed."""
    if run.prepared is not None:
        return compute_figures(run.folder, run.prepared)
    sizes = load_pair(run.folder.folder)
    size = size_figures(run.folder, run.folder.run.model.architecture, (len(sizes.src), len(sizes.tgt)))
    precision = run.folder.run.train.precision
    speed = speed_figures(read_speed(run.folder.speed), run.lines, flops=0.0, precision=precision)
    del speed["train_mfu"]  # the FLOPs follow from the lengths in the corpus
    return size | speed


def _is_optional(column: str) -> bool:
    """Return whether results may lack ``column``: of a metric that was registered later, or of their log."""
    metric = metric_of(column)
    return column == "late_gain" or (metric is not None and metric.name not in FIELDS)


# Check of speed.json: amounts of work against the config, and the common timing of all models.


def read_timings(run: CheckedRun) -> Timings | None:
    """Read the timings of a run; None if it has none, or its speed.json cannot be read."""
    try:
        return read_speed(run.folder.speed).timings
    except (ValueError, OSError):
        return None  # reported by the check of the figures


def check_timings(runs: Sequence[CheckedRun]) -> Iterator[ComparedValue]:
    """Compare the timings of all finished runs with ``[bench]`` and with each other.

    All models are timed in turn, on the same work; the seeds of a label share the timings of the lowest. In a
    folder to which the runs of another machine were added, that holds for those that were timed together:
    tables say that the others do not compare.
    """
    sessions: dict[str | None, list[tuple[CheckedRun, Timings]]] = {}
    for run in runs:
        if (timings := read_timings(run)) is not None:
            together = timings.session.timed_together if timings.session else None
            sessions.setdefault(together, []).append((run, timings))
    for session in sessions.values():
        yield from _check_session(session, runs)


def _check_session(
    timed: Sequence[tuple[CheckedRun, Timings]], runs: Sequence[CheckedRun]
) -> Iterator[ComparedValue]:
    """Compare runs that were timed together, or before that was recorded.

    Args:
        timed: the runs.
        runs: all of the folder; the others may have taken the place of runs that were timed with these.
    """
    if len({run.folder.run.bench for run, _ in timed}) == 1:  # otherwise the last one's, whichever it was
        for run, timings in timed:
            yield from _check_amounts(run, timings)
    for name, value in _COMMON.items():
        values = {run.name: value(timings) for run, timings in timed}
        most = max(values.values(), key=list(values.values()).count, default=None)
        for run_name, own in values.items():
            yield ComparedValue(run_name, f"speed.json: {name}, as in other runs", own, most)
    for run, timings in timed:
        same_label = [each for each in timed if each[0].result.label == run.result.label]
        first, of_label = min(same_label, key=lambda each: each[0].result.seed)
        if timings.session is not None:
            here = {each.name for each, _ in same_label}
            replaced = {each.name for each in runs if each.result.label == run.result.label} - here
            lowest = of_label.session.timed_run if of_label.session else first.name
            expected = lowest if lowest in replaced else first.name
            yield ComparedValue(run.name, "speed.json: timed_run", timings.session.timed_run, expected)
            own = "those of its label" if timings == of_label else "others"
            yield ComparedValue(run.name, "speed.json: times", "those of its label", own)


def _check_amounts(run: CheckedRun, timings: Timings) -> Iterator[ComparedValue]:
    """Compare the numbers of sentences and repeats with the config and the first test set."""
    bench = run.folder.run.bench
    searches = {
        name: speed
        for name, speed in (("greedy", timings.greedy), ("beam", timings.beam))
        if speed is not None
    }
    amounts = {f"repeats of {name}": (len(each.seconds), bench.repeats) for name, each in searches.items()}
    latency_ms = [] if timings.latency is None else timings.latency.ms
    if timings.train is not None:
        amounts["repeats of train"] = len(timings.train.seconds), bench.repeats
        if latency_ms:
            amounts["repeats of latency"] = len(latency_ms), bench.repeats
    if run.prepared is not None:
        corpus = run.prepared.corpus
        lines = len(corpus.splits[corpus.tests[0]].src)
        for name, each in searches.items():
            amounts[f"sentences of {name}"] = each.sentences, min(bench.sentences, lines)
        for repeat in latency_ms:
            amounts["sentences of latency"] = len(repeat), min(bench.latency_sentences, lines)
    for name, pair in amounts.items():
        yield ComparedValue(run.name, f"speed.json: {name}", *pair)


_COMMON: dict[str, Callable[[Timings], Any]] = {
    "sentences of train": lambda timings: timings.train and timings.train.sentences,
    "tokens of train": lambda timings: timings.train and timings.train.tokens,
    "sentences of greedy": lambda timings: timings.greedy and timings.greedy.sentences,
    "sentences of latency": lambda timings: timings.latency and len(timings.latency.ms[0]),
    "repeats of train": lambda timings: timings.train and len(timings.train.seconds),
    "repeats of greedy": lambda timings: timings.greedy and len(timings.greedy.seconds),
    "repeats of beam": lambda timings: timings.beam and len(timings.beam.seconds),
    "repeats of latency": lambda timings: timings.train and timings.latency and len(timings.latency.ms),
    "device": lambda timings: timings.session and timings.session.device,
    "torch": lambda timings: timings.session and timings.session.torch,
    "threads": lambda timings: timings.session and timings.session.threads,
    "cores": lambda timings: timings.session and timings.session.cores,
    "decode_precision": lambda timings: timings.session and timings.session.decode_precision,
}
"""What the timings of all models have in common."""


# Check of perplexity.json: what was counted, and by which weights.


def check_likelihoods(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Count the tokens and characters of each test set again, and compare the hash of the weights.

    The log-likelihood itself needs the weights; ``check_weights`` computes it again.
    """
    path, result = run.folder.likelihoods, run.result
    if not path.exists() and result.perplexity is None and result.char_perplexity is None:
        yield Gap("the perplexity of the test sets, which was not measured", run.name)
        return
    likelihoods = read_likelihoods(path)
    weights = run.folder.weights
    found = hash_file(weights) if weights.is_file() else result.files.get(WEIGHTS, "no hash")
    yield ComparedValue(run.name, f"{path.name}: weights", likelihoods.weights, found)
    if run.prepared is None:
        return
    for test, sums in likelihoods.tests.items():
        if test in run.prepared.corpus.tests:
            references = run.prepared.corpus.splits[test].tgt
            ids = run.prepared.vocabularies.tgt.encode_all(references)
            counts = {
                "tokens": sum(map(len, ids)) + len(ids),
                "characters": count_characters(references),
                "unknown": sum(sentence.count(UNK) for sentence in ids),
            }
            for key, value in counts.items():
                yield ComparedValue(run.name, f"{path.name}: {key} of {test}", getattr(sums, key), value)


# Check of external.json: scores of metrics from outside against the translations and the result.


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
