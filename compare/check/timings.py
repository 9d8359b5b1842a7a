"""Check of speed.json: amounts of work against the config, and the common timing of all models."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.results.speed_file import Timings, read_speed


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
