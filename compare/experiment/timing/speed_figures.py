"""Compute the figures of speed from the timed repeats of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import median
from typing import Any

from compare.results.columns import SPREAD_ENDS, SPREADS
from compare.results.speed_file import Latency, RawSpeed, Timings
from compare.system.machine import Machine
from compare.system.peak_flops import peak_flops
from compare.system.timing import percentile

Figures = dict[str, Any]
"""Fields of ``Result`` by name."""
MIN_PERCENTILE_SENTENCES = 100
"""Sentences from which the 95th percentile of latency is known: five of a hundred are above it."""
TIMED = (
    *SPREADS,
    *SPREAD_ENDS,
    *("train_tgt_tokens_per_s", "train_mfu", "decode_tokens_per_s", "latency_ms_p95"),
    *("cpu_share", "decode_precision", "timed_together"),
)
"""Fields that are unknown before timing."""


def speed_figures(
    raw: RawSpeed, metrics: Sequence[Mapping[str, Any]], *, flops: float, precision: str
) -> Figures:
    """Compute medians, spreads and percentiles of the timed repeats.

    Args:
        raw: content of speed.json.
        metrics: lines of the training log.
        flops: FLOPs of training per token.
        precision: precision of training.

    Returns:
        All fields of speed, None where it was not timed, and the machine of the timing.
    """
    costs = {"decode_s": raw.decode_s, "peak_memory_bytes": raw.peak_memory_bytes}
    figures: Figures = {**dict.fromkeys(TIMED), **costs}
    timings = raw.timings
    if timings is None:
        return figures
    figures |= _search_figures(timings)
    logged, tgt_share = log_speed(metrics)
    if timings.train is None or timings.session is None:  # an earlier version timed each run alone
        return {**figures, "train_tokens_per_s": logged, "train_tgt_tokens_per_s": logged * tgt_share}
    train, session = timings.train, timings.session
    peak = peak_flops(session.device, precision)
    timed = (timings.latency, train, timings.greedy, timings.beam)
    shares = [work.cpu_share for work in timed if work is not None]
    figures |= {item.name: getattr(session, item.name) for item in fields(Machine)}
    figures |= _spread("train_tokens_per_s", [train.tokens / each for each in train.seconds])
    for name, speed in (("greedy", timings.greedy), ("beam", timings.beam)):
        if speed is not None:
            figures |= _spread(f"{name}_sentences_per_s", [speed.sentences / each for each in speed.seconds])
    return {
        **figures,
        "train_tokens_per_s": train.tokens_per_s,
        "train_tgt_tokens_per_s": train.tokens_per_s * tgt_share,
        "train_mfu": None if peak is None else train.tokens_per_s * flops / peak,
        "cpu_share": min((share for share in shares if share is not None), default=None),
        "decode_precision": None if timings.beam is None else session.decode_precision,
        "timed_together": session.timed_together,
    }


def _search_figures(timings: Timings) -> Figures:
    """Compute the speeds of search; none of a model that does not search."""
    greedy, beam, latency = timings.greedy, timings.beam, timings.latency
    if greedy is None or beam is None or latency is None:
        return {}
    medians = [percentile(repeat, 0.5) for repeat in latency.ms]
    figures = {
        "greedy_sentences_per_s": greedy.sentences_per_s,
        "beam_sentences_per_s": beam.sentences_per_s,
        "decode_tokens_per_s": beam.tokens_per_s,
        "latency_ms_p50": median(medians),
    }
    if timings.session is None:  # an earlier version timed each run alone
        return figures
    return {**figures, **_spread("latency_ms_p50", medians), "latency_ms_p95": _p95(latency)}


def log_speed(metrics: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Compute the speed of the training itself.

    Args:
        metrics: lines of the training log.

    Returns:
        The median tokens per second over the lines, and the share of target tokens.
    """
    windows = [line for line in metrics if line["kind"] == "train"]
    steady = windows[1:] or windows  # the first line includes start-up
    tgt_tokens = sum(line["tgt_tokens"] for line in steady)
    tokens = tgt_tokens + sum(line["src_tokens"] for line in steady)
    return percentile([line["tokens_per_s"] for line in steady], 0.5), tgt_tokens / tokens


def _p95(latency: Latency) -> float | None:
    """Compute the 95th percentile of the sentences, the median over the repeats; None for few sentences."""
    if len(latency.ms[0]) < MIN_PERCENTILE_SENTENCES:
        return None
    return median(percentile(repeat, 0.95) for repeat in latency.ms)


def _spread(name: str, values: Sequence[float]) -> Figures:
    """Return the lowest and the highest repeat; None for a single repeat, which has no spread."""
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}
