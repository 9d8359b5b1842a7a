"""Write tables and outcomes of finished results into README.md and docs/; ``--check`` only compares."""

import re
import sys
from functools import cache
from pathlib import Path

from pandas import DataFrame

from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.significance.comparison import Comparison, describe_p
from compare.analysis.significance.headline import headlines
from compare.analysis.significance.scored_tests import score_tests
from compare.report.html.significance import choose_reference, run_comparisons
from compare.report.tables.shapes import TableShape, load_table
from compare.report.tables.table import render_table
from compare.results.score_columns import PRIMARY
from compare.results.store import read_results

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"(<!-- (table|intervals|outcome|comparisons): (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL
)
"""``table`` may name columns of its data frame, separated by commas; without, it is ``attnbench table``'s."""


def regenerate(text: str) -> str:
    """Return ``text`` with everything between markers made again from the result files."""

    def block(match: re.Match[str]) -> str:
        opening, kind, name, columns, closing = match.groups()
        if kind == "table":
            content = table(ROOT / name, tuple(columns.split(",")) if columns else None)
        else:
            made = {"intervals": intervals, "outcome": outcome, "comparisons": comparisons}
            content = made[kind](ROOT / name)
        return f"{opening}\n{content}\n\n{closing}"

    return BLOCK.sub(block, text)


def table(folder: Path, columns: tuple[str, ...] | None = None) -> str:
    """Return a row per model: with several seeds their means, the texts of the corpus being at hand.

    A table of some columns has one decimal, and stands without the notes on its conditions.
    """
    if columns is None:
        return render_table(rows(folder)).strip()
    return rows(folder)[list(columns)].to_markdown(index=False, floatfmt=",.1f", intfmt=",")


@cache
def rows(folder: Path) -> DataFrame:
    """Return a row per model, as ``table`` shows it."""
    seeds = {result.seed for result in read_results(folder)}
    return load_table(folder, TableShape.AGGREGATED if len(seeds) > 1 else TableShape.ROWS)


@cache
def intervals(folder: Path) -> str:
    """Return a table of mean BLEU, its standard deviation and the three intervals of every model."""
    kinds = ("test_set", "seeds", "combined")
    lines = [
        "| model | seeds | BLEU | other sentences | other seeds | combined |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for _, row in rows(folder).iterrows():
        limits = [f"{row[f'bleu_{kind}_low']:.1f} to {row[f'bleu_{kind}_high']:.1f}" for kind in kinds]
        bleu = f"{row['bleu']:.1f} ± {row['bleu_sd']:.1f}"
        lines.append(f"| {' | '.join([row['label'], str(row['seeds']), bleu, *limits])} |")
    return "\n".join(lines)


@cache
def compared(folder: Path) -> tuple[FinishedExperiment, list[Comparison]]:
    """Return a finished experiment and the comparisons of its models by BLEU on its first test set."""
    finished = load_finished(folder)
    found = run_comparisons(score_tests(finished), choose_reference(finished, ""))
    first = (finished.corpus.tests[0], PRIMARY)
    return finished, [each for each in found if (each.test, each.metric) == first]


@cache
def outcome(folder: Path) -> str:
    """Return the sentences with which the report of an experiment begins, as a list."""
    return "\n".join(f"- {sentence}" for sentence in headlines(*compared(folder)))


@cache
def comparisons(folder: Path) -> str:
    """Return a table of all pairs: difference, p-value with Holm's correction, combined interval, verdict."""
    lines = ["| difference | BLEU | p, corrected | combined interval | verdict |", "|---|--:|--:|--:|---|"]
    for found in compared(folder)[1]:
        each = found if found.difference >= 0 else found.swapped()
        low, high = each.intervals.combined or (float("nan"), float("nan"))
        p, verdict = describe_p(each.p).removeprefix("p").removeprefix(" = "), each.row["verdict"]
        interval = f"{low:.1f} to {high:.1f}"
        lines.append(
            f"| {each.first} - {each.second} | {each.difference:.1f} | {p} | {interval} | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    regenerated = {page: regenerate(text) for page in PAGES if "<!-- " in (text := page.read_text("utf-8"))}
    if "--check" in sys.argv:
        sys.exit(any(page.read_text("utf-8") != text for page, text in regenerated.items()))
    for page, text in regenerated.items():
        page.write_text(text, encoding="utf-8")
