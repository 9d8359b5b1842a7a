"""What changed since an earlier result, beyond noise."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compare.benchmark.measurement import NONE, Measurement, figure, markdown

Verdict = Literal["faster", "slower", "within noise", "one repeat", "other work", "new"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row now and then."""

    row: str
    ratio: float | None
    """Speed of the median repeat now over that then, above 1 is faster; None if not comparable."""
    verdict: Verdict


def find_changes(now: Sequence[Measurement], earlier: Sequence[Measurement]) -> list[Change]:
    """Each row of ``now`` against its namesake; of several namesakes the last."""
    known = {row.name: row for row in earlier}
    return [_change(row, known.get(row.name)) for row in now]


def render_changes(found: Sequence[Change]) -> str:
    """The changes as a Markdown table."""
    cells = [
        {
            "row": change.row,
            "speed to then": NONE if change.ratio is None else figure(change.ratio),
            "verdict": change.verdict,
        }
        for change in found
    ]
    return f"{markdown(cells)}\n- faster, slower: the repeats of now and then, min to max, do not overlap\n"


def _change(now: Measurement, then: Measurement | None) -> Change:
    if then is None:
        return Change(row=now.name, ratio=None, verdict="new")
    if _work(now) != _work(then):
        return Change(row=now.name, ratio=None, verdict="other work")
    ratio = statistics.median(then.seconds) / statistics.median(now.seconds)
    return Change(row=now.name, ratio=ratio, verdict=_verdict(now.seconds, then.seconds))


def _verdict(now: Sequence[float], then: Sequence[float]) -> Verdict:
    """Whether the time of the same work changed by more than it does by itself."""
    if min(len(now), len(then)) < 2:
        return "one repeat"  # which has no spread to tell noise by
    if max(now) < min(then):
        return "faster"
    return "slower" if min(now) > max(then) else "within noise"


def _work(row: Measurement) -> tuple[int, float | None, int, int]:
    """What the time went into; it differs with the model's size, the data and the vocabulary."""
    return row.params, row.flops_per_token, row.sentences, row.tokens
