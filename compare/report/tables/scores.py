"""Scores of one or several systems against the same references, as text, Markdown or JSON."""

import json
from collections.abc import Mapping

from compare.analysis.table import Row
from compare.results.markdown import escape_markdown, markdown_table
from compare.scoring.metrics import METRICS
from compare.scoring.score import SystemScores


def render_scores(scores: Mapping[str, SystemScores], *, as_json: bool = False) -> str:
    """Format the scores of systems.

    Args:
        scores: by the system's name, all computed with the same options.
        as_json: whether to give JSON: an object for one system, else a list of objects; each has a "system".

    Returns:
        Without ``as_json``, one line per score for one system, a Markdown table with signatures for several.
    """
    if as_json:
        records = [{"system": name, **system.columns()} for name, system in scores.items()]
        return json.dumps(records if len(records) > 1 else records[0], indent=2)
    first, *others = scores.values()
    if not others:
        return str(first)
    table = markdown_table([_row(name, system) for name, system in scores.items()])
    columns = first.columns()
    signatures = {metric.heading: columns.get(f"{name}_signature") for name, metric in METRICS.items()}
    notes = [f"- {heading}: {text}" for heading, text in signatures.items() if text]
    return "\n".join([table, "", *map(escape_markdown, notes)])


def _row(name: str, system: SystemScores) -> Row:
    """Return one row of the table, with the computed scores only."""
    columns = system.columns()
    row: Row = {"system": name}
    for metric, definition in METRICS.items():
        if (score := columns.get(metric)) is None:
            continue
        row[definition.heading] = score
        if interval := system.interval(metric):
            row["[95%]" if "[95%]" not in row else f"{definition.heading} [95%]"] = interval
    return row if system.length_ratio is None else {**row, "length ratio": system.length_ratio}
