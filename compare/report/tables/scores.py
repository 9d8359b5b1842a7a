"""Scores of translations, against references or by models, as text, Markdown or JSON."""

import json
from collections.abc import Mapping, Sequence

from compare.analysis.table import Row
from compare.experiment.contrastive import ContrastAccuracy
from compare.experiment.forced_scoring import ForcedScores
from compare.results.markdown import escape_markdown, markdown_table
from compare.results.result import without_nan
from compare.scoring.metrics import METRICS
from compare.scoring.score import SystemScores
from data.grammar import PHENOMENA


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
    signatures |= {name: columns[f"{name}_signature"] for name in first.external()}
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
    row |= system.external()
    return row if system.length_ratio is None else {**row, "length ratio": system.length_ratio}


def render_forced_scores(scores: Mapping[str, ForcedScores], *, as_json: bool = False) -> str:
    """Format the scores that models give to the translations of a text.

    Args:
        scores: by run, all of the same text.
        as_json: whether to give JSON: an object for one run, else a list of objects; each has a "run".

    Returns:
        Without ``as_json``, for one run a line per sentence with its log-probability and that of each piece,
        and the perplexities; for several a Markdown table of the perplexities.
    """
    if as_json:
        records = [without_nan({"run": name, **found.to_json()}) for name, found in scores.items()]
        return json.dumps(records if len(records) > 1 else records[0], indent=2, ensure_ascii=False)
    if len(scores) > 1:
        return markdown_table([_forced_row(name, found) for name, found in scores.items()])
    (found,) = scores.values()
    lines = []
    for sentence in found.sentences:
        pieces = zip(sentence.pieces, sentence.logp, strict=True)
        lines.append(f"{sentence.total:.4f}\t{' '.join(f'{piece}:{logp:.4f}' for piece, logp in pieces)}")
    sums = found.sums
    return "\n".join(
        [
            *lines,
            f"perplexity {sums.perplexity:.4f} per token ({sums.tokens:,} tokens, {sums.unknown:,} unknown), "
            f"{sums.char_perplexity:.4f} per character ({sums.characters:,} characters)",
        ]
    )


def render_contrasts(found: Mapping[str, Sequence[ContrastAccuracy]], *, as_json: bool = False) -> str:
    """Format contrastive accuracies: a Markdown table with one column per run, or a JSON list.

    Args:
        found: the accuracies by run, all on the same pairs.
        as_json: whether to give JSON, which has one object per run, phenomenon and range of distances.
    """
    if as_json:
        records = [
            {"run": name, **row._asdict(), "accuracy": row.accuracy, "interval": list(row.interval)}
            for name, rows in found.items()
            for row in rows
        ]
        return json.dumps(records, indent=2)
    table: list[Row] = []
    for rows in zip(*found.values(), strict=True):
        cells = {}
        for name, row in zip(found, rows, strict=True):
            low, high = row.interval
            cells[name] = f"{row.accuracy:.1f} [{low:.0f}, {high:.0f}]"
        first = rows[0]
        table.append(
            {"phenomenon": first.phenomenon, "distance": first.distance, "pairs": first.pairs, **cells}
        )
    notes = [f"- {name}: {about}" for name, about in PHENOMENA.items()]
    title = (
        "Contrastive accuracy in percent [95%]: right translations that are more probable than wrong ones."
    )
    table_text = markdown_table(table, left=["phenomenon", "distance"])
    return "\n".join([title, "", table_text, "", *notes, "", "Guessing gives 50."])


def _forced_row(name: str, found: ForcedScores) -> Row:
    """Return the perplexities of one run as a row of a table."""
    sums = found.sums
    return {
        "run": name,
        "log-probability": round(-sums.nll, 2),
        "tokens": sums.tokens,
        "unknown": sums.unknown,
        "perplexity": round(sums.perplexity, 4),
        "perplexity per character": round(sums.char_perplexity, 4),
    }
