"""Write tables and outcomes of finished results into README.md and docs/.

    python -m benchmarks.readme [--corpora FOLDER] [--check]

FOLDER holds corpora, such as FOLDER/multi30k, with which intervals and tests of models that were trained on
them are computed again; without one, what is made of these stays as it is, and the program says so.
``--check`` writes nothing; the exit status is 1 if a page differs.
"""

import argparse
import re
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pandas import DataFrame

from compare.analysis.comparison import compare_all
from compare.analysis.cost import cost_points, time_to_quality
from compare.analysis.finished_experiment import load_finished
from compare.analysis.summary import summarise
from compare.config.parse import load_experiment
from compare.report.conditions import list_left_out
from compare.report.result_table import load_table, render_table
from compare.results.columns import bleu_interval_column, score_column
from compare.results.formatting import describe_p
from compare.results.store import load_results, read_results

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"(<!-- (table|intervals|outcome|comparisons|times|scores): (\S+)(?: ([^>\n]+))? -->\n).*?(<!-- end -->)",
    re.DOTALL,
)
"""``table`` may name columns by their headings, ``times`` levels of BLEU, ``outcome`` how many sentences."""


def regenerate(text: str, corpora: Path | None = None, absent: set[str] | None = None) -> str:
    """Return ``text`` with everything between markers made again from the result files.

    Args:
        text: of a page.
        corpora: their folder.
        absent: gets the corpora without which a block had to be left as it was.
    """

    def block(match: re.Match[str]) -> str:
        opening, kind, name, columns, closing = match.groups()
        folder = ROOT / name
        if kind == "scores":
            return f"{opening}\n{scores(folder)}\n\n{closing}"
        root = load_experiment(folder / "experiment.toml").data.root
        corpus = str(corpora / Path(root).name) if corpora and root else ""
        if root and not (corpus and Path(corpus).is_dir()) and needs_corpus(kind, folder):
            if absent is not None:
                absent.add(Path(root).name)
            return match[0]
        if kind == "table":
            content = table(folder, corpus, tuple(columns.split(",")) if columns else None)
        elif kind == "times":
            content = times(folder, tuple(map(int, columns.split(","))))
        elif kind == "outcome":
            content = outcome(folder, corpus, int(columns) if columns else None)
        else:
            content = {"intervals": intervals, "comparisons": comparisons}[kind](folder, corpus)
        return f"{opening}\n{content}\n\n{closing}"

    return BLOCK.sub(block, text)


def needs_corpus(kind: str, folder: Path) -> bool:
    """Return whether a block of this kind is computed from the references of a corpus."""
    return kind != "times" and (kind != "table" or has_means(folder))


def has_means(folder: Path) -> bool:
    """Return whether a table has one row per model, whose intervals are computed from the translations."""
    return len({result.seed for result in read_results(folder)}) > 1


def table(folder: Path, corpus: str, columns: tuple[str, ...] | None = None) -> str:
    """Return a row per model, with several seeds their means.

    Conditions stand below, or if columns are given, only which runs failed.
    """
    runs = load_results(folder) if has_means(folder) else ()
    text = render_table(rows(folder, corpus), columns=columns, runs=runs).strip()
    if not columns:
        return text
    missing = list_left_out([asdict(result) for result in read_results(folder)])
    return "\n\n".join([text.split("\n\n")[0], *missing])


@cache
def rows(folder: Path, corpus: str) -> DataFrame:
    """Return a row per model, as ``table`` shows it."""
    if has_means(folder):
        return load_table(folder, "aggregated", data_root=corpus)
    return load_table(folder, "rows")


@cache
def intervals(folder: Path, corpus: str) -> str:
    """Return a table of mean BLEU, its standard deviation and the three intervals of every model."""
    lines = [
        "| model | seeds | BLEU | other sentences | other seeds | combined |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for _, row in rows(folder, corpus).iterrows():
        columns = score_column("bleu"), *map(bleu_interval_column, ("test_set", "seeds", "combined"))
        cells = [column.text(row) for column in columns]
        lines.append(f"| {' | '.join([row['label'], str(row['seeds']), *cells])} |")
    return "\n".join(lines)


@cache
def outcome(folder: Path, corpus: str, count: int | None = None) -> str:
    """Return the first sentences of an experiment's outcome, or all, as a list."""
    sentences = summarise(folder, data_root=corpus).outcome[:count]
    return "\n".join(f"- {sentence}" for sentence in sentences)


@cache
def comparisons(folder: Path, corpus: str) -> str:
    """Return a table of all pairs: difference, its interval, p-value with Holm's correction, verdict."""
    lines = ["| difference | BLEU | 95% interval | p | p by Holm | verdict |", "|---|--:|--:|--:|--:|---|"]
    for comparison in compare_all(load_finished(folder, data_root=corpus))[1]:
        pair = comparison if comparison.difference >= 0 else comparison.swapped()
        low, high = pair.interval
        cells = [f"{pair.first} - {pair.second}", f"{pair.difference:.1f}", f"{low:.1f} to {high:.1f}"]
        lines.append(f"| {' | '.join([*cells, _p(pair.p_alone), _p(pair.p), pair.verdict])} |")
    return "\n".join(lines)


@cache
def times(folder: Path, levels: tuple[int, ...]) -> str:
    """Return a table of minutes (and updates) to levels of validation BLEU."""
    rows = time_to_quality(cost_points(load_finished(folder, needs_texts=False)).rows, levels).rows
    lines = [f"| | {' | '.join(f'{level} BLEU' for level in levels)} |", f"|---|{'--:|' * len(levels)}"]
    for row in rows:
        costs = [(row[f"minutes_to_{level}"], row[f"updates_to_{level}"]) for level in levels]
        cells = ["-" if updates is None else f"{minutes:.1f} ({updates:,})" for minutes, updates in costs]
        lines.append(f"| {' | '.join([row['label'], *cells])} |")
    return "\n".join(lines)


def scores(folder: Path) -> str:
    """Return a table of BLEU by system and test set from the output of ``score``, ``SYSTEM.TEST.txt``."""
    systems: dict[str, dict[str, str]] = {}
    for file in sorted(folder.glob("*.txt")):
        system, test = file.stem.split(".")
        systems.setdefault(system, {})[test] = f"{float(file.read_text('utf-8').split()[1]):.1f}"
    tests = list(next(iter(systems.values())))
    lines = [f"| | {' | '.join(tests)} |", f"|---|{'--:|' * len(tests)}"]
    lines += [
        f"| {' | '.join([system, *(bleu[test] for test in tests)])} |" for system, bleu in systems.items()
    ]
    return "\n".join(lines)


def _p(p: float) -> str:
    """Return a p-value for a column of its own."""
    return describe_p(p).removeprefix("p").removeprefix(" =").strip()


def main() -> int:
    """Regenerate all pages, or compare them; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=Path, help="folder of corpora")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    absent: set[str] = set()
    differ = False
    for page in PAGES:
        text = page.read_text("utf-8")
        made = regenerate(text, options.corpora, absent)
        differ |= made != text
        if not options.check:
            page.write_text(made, encoding="utf-8")
    for corpus in sorted(absent):
        print(f"not computed again, for want of {corpus} in --corpora: intervals and tests of its models")
    return int(options.check and differ)


if __name__ == "__main__":
    sys.exit(main())
