"""Notes on what ended the training of the rows of a table, and the gains of longer training as text."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from compare.experiment.convergence_file import STILL_IMPROVING, Convergence
from compare.results.column import Row
from compare.results.markdown import markdown_table
from compare.results.score_columns import are_language_models

ENDS = {
    "updates": "Stopped by the budget, with all updates used",
    "patience": "Stopped by patience, as validation no longer improved",
}
"""Note on what ended training, by the value of ``Result.stopped_by``."""
NOT_MEASURED = "Not measured whether still improving when stopped (attnbench converge FOLDER)"


def list_ends_of_training(rows: Sequence[Row]) -> list[str]:
    """List what ended the training of finished rows, and which models were still improving, a line each."""
    labels: dict[str, list[str]] = {}
    models: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        if row.get("status", "done") == "done":
            models.setdefault((row.get("experiment"), row.get("label")), []).append(row)
    for (_, label), runs in models.items():
        for note, holding in _notes(runs):
            some = f" ({holding} of {len(runs)} seeds)" if holding < len(runs) else ""
            labels.setdefault(note, []).append(f"{label}{some}")
    notes = sorted(labels, reverse=True)  # ends of training first, what is not known last
    return [f"{note}: {', '.join(dict.fromkeys(labels[note]))}" for note in notes]


def _notes(runs: Sequence[Row]) -> Iterator[tuple[str, int]]:
    """Yield the notes on the runs of one model, and for how many of them each holds."""
    ends = [row.get("stopped_by") for row in runs]
    yield from ((note, ends.count(end)) for end, note in ENDS.items() if end in ends)
    measured = [row for row in runs if None not in (row.get("longer_gain"), row.get("longer_factor"))]
    for row in measured:
        if row["longer_gain"] >= STILL_IMPROVING:
            gain = f"{row['longer_factor']:g}x updates gain at least {STILL_IMPROVING} validation BLEU"
            yield f"Still improving when stopped ({gain})", len(runs)
    unknown = len(ends) - ends.count("patience")
    if not measured and unknown and not are_language_models(runs):
        yield NOT_MEASURED, unknown


def render_convergence(entries: Sequence[Convergence], *, as_json: bool = False) -> str:
    """Format the entries of convergence.json.

    Args:
        entries: as ``measure_convergence`` returns them.
        as_json: whether to give a list of objects instead of a Markdown table.
    """
    if as_json:
        return json.dumps([asdict(entry) for entry in entries], indent=2)
    if not entries:
        return "no model was measured"
    rows = [
        {
            "model": entry.label,
            "seed": entry.seed,
            "updates": f"{entry.updates:,}",
            "validation BLEU": f"{entry.bleu:.1f}",
            "longer": f"{entry.longer_updates:,}",
            "validation BLEU, longer": f"{entry.longer_bleu:.1f}",
            "gain": f"{entry.gain:+.1f}",
            "still improving": "yes" if entry.still_improving else "no",
        }
        for entry in entries
    ]
    note = f"- still improving: a gain of at least {STILL_IMPROVING} BLEU; greedy search, validation set"
    return f"{markdown_table(rows, left=('model',))}\n\n{note}"
