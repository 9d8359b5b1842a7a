"""Table of what runs are expected to take."""

from collections.abc import Sequence

from compare.experiment.estimate import RunEstimate, total_seconds
from compare.results.markdown import markdown_table
from compare.results.numbers import UNKNOWN, format_number
from compare.system.progress import format_duration


def render_estimates(estimates: Sequence[RunEstimate]) -> str:
    """Format estimates as a Markdown table, with what the figures include below it.

    Args:
        estimates: of one or more runs.
    """
    rows = [
        {
            "run": each.name,
            "status": each.status,
            "params (M)": f"{each.params / 1e6:,.2f}",
            "memory (GB)": format_number(each.memory_bytes / 1e9, 2),
            "updates": f"{each.updates:,}",
            "updates left": f"{each.updates_left:,}",
            "training": UNKNOWN if each.train_s is None else format_duration(each.train_s),
        }
        for each in estimates
    ]
    total = total_seconds(estimates)
    notes = [
        "memory: weights, gradients, optimizer and, with ema, the moving average; activations come on top, "
        "about twice as many with consistency",
        "training: from a few updates of each model timed on this machine just now, one run after the other; "
        "validation, translation of the test sets and the timing of all models come on top"
        if total is not None
        else "training: unknown where the device is not here, or a model is too large for a short look",
    ]
    if total is not None:
        notes.insert(0, f"all runs: about {format_duration(total)} of training")
    return markdown_table(rows, left={"run", "status"}) + "\n\n" + "\n".join(f"- {note}" for note in notes)
