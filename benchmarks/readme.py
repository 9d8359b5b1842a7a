"""Write the tables and outcomes of finished results into README.md; ``--check`` only compares."""

import re
import sys
from pathlib import Path

from compare.analysis.finished_experiment import load_finished
from compare.analysis.significance.headline import headlines
from compare.analysis.significance.scored_tests import score_tests
from compare.report.html.significance import choose_reference, run_comparisons
from compare.report.tables.shapes import TableShape, load_table
from compare.report.tables.table import render_table
from compare.results.score_columns import PRIMARY
from compare.results.store import read_results

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- (table|outcome): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerate(text: str) -> str:
    """Return ``text`` with everything between markers made again from the result files."""

    def block(match: re.Match[str]) -> str:
        content = {"table": table, "outcome": outcome}[match[2]](ROOT / match[3])
        return f"{match[1]}\n{content}\n\n{match[4]}"

    return BLOCK.sub(block, text)


def table(folder: Path) -> str:
    """Return a row per model: with several seeds their means, the texts of the corpus being at hand."""
    seeds = {result.seed for result in read_results(folder)}
    shape = TableShape.AGGREGATED if len(seeds) > 1 else TableShape.ROWS
    return render_table(load_table(folder, shape)).strip()


def outcome(folder: Path) -> str:
    """Return the sentences with which the report of an experiment begins, as a list."""
    finished = load_finished(folder)
    comparisons = run_comparisons(score_tests(finished), choose_reference(finished, ""))
    first = (finished.corpus.tests[0], PRIMARY)
    sentences = headlines(finished, [each for each in comparisons if (each.test, each.metric) == first])
    return "\n".join(f"- {sentence}" for sentence in sentences)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(regenerate(text) != text)
    readme.write_text(regenerate(text), encoding="utf-8")
