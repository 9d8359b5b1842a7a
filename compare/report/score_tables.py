"""Tables of scores of texts, of estimates, and of ensembles."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from compare.analysis.tables import Row
from compare.experiment.dry_run import RunEstimate, total_seconds
from compare.experiment.likelihood import ForcedScores
from compare.report.conditions import distinct, metric_heading, signature_columns
from compare.results.columns import COLUMNS, score_column, text_columns
from compare.results.records import EnsembleResult, read_ensembles
from compare.results.result import without_nan
from compare.results.store import experiment_names
from compare.results.text import UNKNOWN, escape_markdown, format_number, markdown_table
from compare.scoring.metrics import METRICS
from compare.scoring.score import SystemScores
from compare.system.log import format_duration

# Scores of translations, against references or by models, as text, Markdown or JSON.


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


# Table of ensembles, which stands apart from that of single runs.


TITLE = "Ensembles: several models translate together; not to be ranked with single models"


def render_ensembles(results: Sequence[EnsembleResult], experiments: Sequence[str] = ()) -> str:
    """Format ensembles as a Markdown table, one row per ensemble and test set, and the metrics' signatures.

    Args:
        results: at least one ensemble.
        experiments: the name of the experiment of each, for a column of its own.
    """
    columns = [
        *(score_column(metric) for metric in METRICS),
        *text_columns(),
        COLUMNS["length_penalty"],
        COLUMNS["params"],
    ]
    rows, scored = [], []
    for number, result in enumerate(results):
        for test, scores in result.tests.items():
            values: Row = {**scores, "length_penalty": result.length_penalty, "params": result.params}
            rows.append(
                {"ensemble": result.label}
                | ({"experiment": experiments[number]} if experiments else {})
                | {"test set": test}
                | {column.heading: column.text(values) for column in columns}
                | {"members": ", ".join(result.members), "hash of members": result.members_hash[:12]}
            )
            scored.append(scores)
    known = [name for name in rows[0] if any(row[name] != UNKNOWN for row in rows)]
    rows = [{name: row[name] for name in known} for row in rows]
    text = {"ensemble", "experiment", "test set", "members", "hash of members"}
    signatures = [
        f"- {metric_heading(metric)}: {', '.join(distinct(scored, column))}"
        for metric, (column,) in signature_columns(dict.fromkeys(chain(*scored))).items()
        if distinct(scored, column)
    ]
    return "\n".join([TITLE, "", markdown_table(rows, left=text), "", *signatures])


def ensembles_below(folders: Sequence[Path]) -> str:
    """Return the table of all ensembles of experiments, to be printed below that of runs; "" without any."""
    names = experiment_names(folders)
    found = [(result, names[folder.resolve()]) for folder in folders for result in read_ensembles(folder)]
    if not found:
        return ""
    results, experiments = zip(*found, strict=True)
    return f"\n{render_ensembles(results, experiments if len(names) > 1 else ())}\n"
