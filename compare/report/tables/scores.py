"""The scores of one text or several against the same references, as text or JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from compare.analysis.table import Row, markdown
from compare.scoring.score import METRICS, SystemScores


def render_scores(scores: Mapping[str, SystemScores], *, as_json: bool = False) -> str:
    """Show the ``scores`` of systems by name, scored alike.

    One system takes a line a score, or one JSON object; several are a Markdown table with the signatures
    below it, or a JSON array of objects, each with its "system".
    """
    if as_json:
        rows = [{"system": name, **asdict(found)} for name, found in scores.items()]
        return json.dumps(rows if len(rows) > 1 else rows[0], indent=2)
    first, *others = scores.values()
    if not others:
        return str(first)
    table = markdown([_row(name, found) for name, found in scores.items()])
    signatures = [getattr(first, f"{metric}_signature") for metric in METRICS]
    titles = zip(("BLEU", "chrF", "TER"), signatures, strict=True)
    return "\n".join([table, "", *(f"- {title}: {text}" for title, text in titles if text)])


def _row(name: str, found: SystemScores) -> Row:
    """One line of the table, with only those scores that there are."""
    bleu = {"BLEU": found.bleu, "[95%]": found.interval} if found.bleu is not None else {}
    cells: Row = {**bleu, "chrF": found.chrf, "TER": found.ter, "length ratio": found.length_ratio}
    return {"system": name, **{title: value for title, value in cells.items() if value is not None}}
