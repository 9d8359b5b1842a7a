"""Tables of scores of texts, and of estimates."""

from collections.abc import Mapping, Sequence
from typing import Any

from compare.analysis.statistics import ALPHA, RANDOMISATIONS, PairedDifference
from compare.experiment.dry_run import RunEstimate
from compare.experiment.likelihood import ForcedScores
from compare.report.render import draw, table_text, terminal_width
from compare.results.store import json_text
from compare.results.table import UNKNOWN, Row, describe_p, format_number, listing
from compare.scoring import METRICS, SystemScores
from compare.system.log import format_duration

# Scores of translations, against references or by models, as text, Markdown or JSON.


def render_scores(
    scores: Mapping[str, SystemScores],
    *,
    differences: Sequence[PairedDifference] = (),
    as_json: bool = False,
) -> str:
    """Format the scores of systems.

    Args:
        scores: by the system's name, all computed with the same options.
        differences: of all pairs of systems.
        as_json: whether to give JSON: an object for one system, else a list of objects; each has a "system".

    Returns:
        Without ``as_json``, one line per score for one system, a Markdown table with signatures for several.
    """
    if as_json:
        records: list[dict[str, Any]] = [
            {"system": name, **system.columns(), "warnings": system.warnings}
            for name, system in scores.items()
        ]
        for record in records if differences else ():
            record["differences"] = [each._asdict() for each in differences if record["system"] in each[:2]]
        return json_text(records if len(records) > 1 else records[0])
    first, *others = scores.values()
    if not others:
        return str(first)
    columns = first.columns()
    signatures = {metric.heading: columns.get(f"{name}_signature") for name, metric in METRICS.items()}
    signatures |= {name: columns[f"{name}_signature"] for name in first.external()}
    table = listing(
        [_row(name, system) for name, system in scores.items()],
        conditions=[f"{heading}: {text}" for heading, text in signatures.items() if text]
        + [f"BLEU on this test set ({RANDOMISATIONS:,} randomisations, Holm's correction):"]
        * bool(differences)
        + [
            f"{each.first} and {each.second}: {each.difference:+.2f}, {describe_p(each.p)}: "
            f"{'differ' if each.p < ALPHA else 'no difference shown'}"
            for each in differences
        ],
        warnings=[f"{name}: {text}" for name, system in scores.items() for text in system.warnings],
    )
    return draw(table, terminal_width()).rstrip("\n")


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
        records = [{"run": name, **found.to_json()} for name, found in scores.items()]
        return json_text(records if len(records) > 1 else records[0])
    if len(scores) > 1:
        rows = [_forced_row(name, found) for name, found in scores.items()]
        return table_text(rows, width=terminal_width())
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


# Table of what runs are expected to take.


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
    seconds = [each.train_s for each in estimates]
    total = None if None in seconds else sum(filter(None, seconds))
    timing = sum({each.name.rpartition("-")[0]: each.timing_s for each in estimates}.values())
    conditions = [
        "memory: weights, gradients, optimizer and, with ema, the moving average; activations come on top, "
        "about twice as many with consistency",
        "training: from a few updates of each model timed on this machine just now, one run after the other, "
        "in proportion to train.max_updates; validation and translation of the test sets come on top, and "
        f"{format_duration(timing)} or more of timing all models (bench.seconds)"
        if total is not None
        else "training: unknown where the device is not here, or a model is too large for it",
    ]
    if total is not None:
        conditions.insert(0, f"all runs: about {format_duration(total)} of training")
    return draw(listing(rows, {"run", "status"}, conditions=conditions), terminal_width()).rstrip("\n")
