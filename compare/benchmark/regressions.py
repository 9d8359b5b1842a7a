"""Comparison with an earlier result: changes of speed beyond noise."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compare.benchmark.measurement import NONE, Measurement, figure, markdown

Verdict = Literal["faster", "slower", "within noise", "one repeat", "other work", "new"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of one measurement since an earlier result."""

    row: str
    ratio: float | None
    """Median speed now over median speed then, above 1 is faster; None if not comparable."""
    verdict: Verdict


def find_changes(now: Sequence[Measurement], earlier: Sequence[Measurement]) -> list[Change]:
    """Compare each measurement with the earlier one of the same name; with the last of several."""
    by_name = {row.name: row for row in earlier}
    return [_change(row, by_name.get(row.name)) for row in now]


def render_changes(changes: Sequence[Change]) -> str:
    """Render the changes as a Markdown table."""
    cells = [
        {
            "row": change.row,
            "speed to then": NONE if change.ratio is None else figure(change.ratio),
            "verdict": change.verdict,
        }
        for change in changes
    ]
    return f"{markdown(cells)}\n- faster, slower: the repeats of now and then, min to max, do not overlap\n"


def _change(now: Measurement, then: Measurement | None) -> Change:
    """Compare a measurement with the earlier one."""
    if then is None:
        return Change(row=now.name, ratio=None, verdict="new")
    if _work(now) != _work(then):
        return Change(row=now.name, ratio=None, verdict="other work")
    ratio = statistics.median(then.seconds) / statistics.median(now.seconds)
    return Change(row=now.name, ratio=ratio, verdict=_verdict(now.seconds, then.seconds))


def _verdict(now: Sequence[float], then: Sequence[float]) -> Verdict:
    """Decide whether the time of the same work changed by more than its spread over the repeats."""
    if min(len(now), len(then)) < 2:
        return "one repeat"  # has no spread
    if max(now) < min(then):
        return "faster"
    return "slower" if min(now) > max(then) else "within noise"


def _work(row: Measurement) -> tuple[int, float | None, int, int]:
    """Describe the work that was timed; it depends on model size, data and vocabulary."""
    return row.params, row.flops_per_token, row.sentences, row.tokens
