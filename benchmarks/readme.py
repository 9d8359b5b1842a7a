"""Write tables and outcomes of finished results into README.md and docs/.

    python -m benchmarks.readme [--corpora FOLDER] [--check]

FOLDER holds corpora, such as FOLDER/multi30k, with which intervals and tests of models that were trained on
them are computed again; without one, what is made of these stays as it is, and the program says so.
``--check`` writes nothing; the exit status is 1 if a page differs.
"""

import argparse
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from pandas import DataFrame

from benchmarks.ablation import compare_variants
from compare.analysis.comparison import (
    Comparison,
    compare_models,
    headlines,
)
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.statistics import score_tests
from compare.config.parse import load_experiment
from compare.report.table import TableShape, load_table, render_table
from compare.results.store import load_results, read_results
from compare.results.text import describe_p, table_text
from compare.training.checkpoints import METRICS, lines_by_update, read_metrics

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"(<!-- (table|intervals|outcome|comparisons|ablation|training|examples): (\S+)"
    r"(?: \+ (\S+))?(?: ([^>\n]+))? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)
"""``table`` and ``comparisons`` may add a run of another experiment, as ``results/a + results/b/lstm-seed1``.

``table`` may name columns by their headings, separated by commas; it then stands without its conditions.
``examples`` names lines of the first test set, counted from 1 and separated by commas.
"""

MINUTES = 45
"""Minutes of training on one core, for ``training``."""


def regenerate(text: str, corpora: Path | None = None, absent: set[str] | None = None) -> str:
    """Return ``text`` with everything between markers made again from the result files.

    Args:
        text: of a page.
        corpora: their folder.
        absent: gets the corpora without which a block had to be left as it was.
    """

    def block(match: re.Match[str]) -> str:
        opening, kind, name, other, columns, closing = match.groups()
        folder, added = ROOT / name, ROOT / other if other else None
        root = load_experiment(folder / "experiment.toml").data.root
        corpus = str(corpora / Path(root).name) if corpora and root else ""
        if root and not (corpus and Path(corpus).is_dir()) and needs_corpus(kind, folder):
            if absent is not None:
                absent.add(Path(root).name)
            return match[0]
        if kind == "table":
            content = table(folder, corpus, tuple(columns.split(",")) if columns else None, added)
        elif kind == "comparisons":
            content = comparisons(folder, corpus, added)
        elif kind == "examples":
            content = examples(folder, corpus, tuple(map(int, (columns or "").split(","))))
        else:
            made = {
                "intervals": intervals,
                "outcome": outcome,
                "ablation": ablation,
                "training": training,
            }
            content = made[kind](folder, corpus)
        return f"{opening}\n{content}\n\n{closing}"

    return BLOCK.sub(block, text)


def needs_corpus(kind: str, folder: Path) -> bool:
    """Return whether a block of this kind is computed from the references of a corpus."""
    return kind != "training" and (kind != "table" or has_means(folder))


def has_means(folder: Path) -> bool:
    """Return whether a table has one row per model, whose intervals are computed from the translations."""
    return len({result.seed for result in read_results(folder)}) > 1


def table(
    folder: Path, corpus: str, columns: tuple[str, ...] | None = None, added: Path | None = None
) -> str:
    """Return a row per model, with several seeds their means.

    Conditions stand below, unless columns are given.
    """
    runs = load_results(folder) if has_means(folder) else ()
    text = render_table(rows(folder, corpus, added), columns=columns, runs=runs).strip()
    return text.split("\n\n")[0] if columns else text


@cache
def rows(folder: Path, corpus: str, added: Path | None = None) -> DataFrame:
    """Return a row per model, as ``table`` shows it.

    Raises:
        ValueError: a run is to be added to an experiment with several seeds.
    """
    if has_means(folder):
        if added:
            raise ValueError(
                f"{added} cannot be added to {folder}, which has several seeds: to one seed only"
            )
        return load_table(folder, TableShape.AGGREGATED, data_root=corpus)
    return load_table([folder, added] if added else folder, TableShape.ROWS)


@cache
def intervals(folder: Path, corpus: str) -> str:
    """Return a table of mean BLEU, its standard deviation and the three intervals of every model."""
    kinds = ("test_set", "seeds", "combined")
    lines = [
        "| model | seeds | BLEU | other sentences | other seeds | combined |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for _, row in rows(folder, corpus).iterrows():
        limits = [f"{row[f'bleu_{kind}_low']:.1f} to {row[f'bleu_{kind}_high']:.1f}" for kind in kinds]
        bleu = f"{row['bleu']:.1f} ± {row['bleu_sd']:.1f}"
        lines.append(f"| {' | '.join([row['label'], str(row['seeds']), bleu, *limits])} |")
    return "\n".join(lines)


@cache
def compared(
    folder: Path, corpus: str, added: Path | None = None
) -> tuple[FinishedExperiment, list[Comparison]]:
    """Return a finished experiment and the comparisons of its models.

    Shared settings of an added run may differ, which its page has to explain.
    """
    finished = load_finished(folder, data_root=corpus)
    if added:
        other = load_finished(added.parent, data_root=corpus)
        run = next(run for run in other.runs if run.folder == added)
        finished = replace(finished, runs=(*finished.runs, run))
    scored = score_tests(finished)
    if added:
        scored = {test: replace(each, settings={}) for test, each in scored.items()}
    return finished, compare_models(scored)


@cache
def outcome(folder: Path, corpus: str) -> str:
    """Return the sentences with which the report of an experiment begins, as a list."""
    return "\n".join(f"- {sentence}" for sentence in headlines(*compared(folder, corpus)))


@cache
def comparisons(folder: Path, corpus: str, added: Path | None = None) -> str:
    """Return a table of all pairs: difference, its interval, p-value with Holm's correction, verdict."""
    lines = ["| difference | BLEU | 95% interval | p | p by Holm | verdict |", "|---|--:|--:|--:|--:|---|"]
    for found in compared(folder, corpus, added)[1]:
        each = found if found.difference >= 0 else found.swapped()
        low, high = each.interval
        cells = [f"{each.first} - {each.second}", f"{each.difference:.1f}", f"{low:.1f} to {high:.1f}"]
        lines.append(f"| {' | '.join([*cells, _p(each.p_alone), _p(each.p), each.verdict])} |")
    return "\n".join(lines)


@cache
def ablation(folder: Path, corpus: str) -> str:
    """Return what each model gains or loses by each change; see ``benchmarks.ablation``."""
    lines = ["| model | | BLEU | difference | 95% interval | p by Holm |", "|---|---|--:|--:|--:|--:|"]
    for label, change, bleu, difference in compare_variants(folder, corpus):
        cells = [label, change, f"{bleu:.1f}"]
        if difference:
            low, high = difference.interval
            cells += [f"{difference.difference:+.1f}", f"{low:+.1f} to {high:+.1f}", _p(difference.p)]
        else:
            cells += ["", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@cache
def training(folder: Path, corpus: str) -> str:
    """Return what training each run cost, how it ended, and what ``MINUTES`` of it would have given.

    Validation BLEU is of greedy search: the best single weights of the first ``MINUTES``, the best of all,
    and the weights that were kept, which may be a mean or a moving average. Test BLEU is that of beam search.
    """
    lines = [
        "| model | seed | tokens (M) | epochs | minutes | ended by "
        f"| best BLEU in {MINUTES} min | best BLEU | BLEU of the weights kept | test BLEU |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    done = [result for result in read_results(folder) if result.status == "done"]
    for result in sorted(done, key=lambda each: (each.label, each.seed)):
        log = read_metrics(folder / result.run / METRICS)
        singles = [(line["seconds"], line["bleu"]) for line in lines_by_update(log, "valid").values()]
        early = [bleu for seconds, bleu in singles if seconds <= 60 * MINUTES]
        best = max(bleu for _, bleu in singles)
        kept = next(line["bleu"] for line in log if line["kind"] == "final")
        lines.append(
            f"| {result.label} | {result.seed} | {result.tokens_seen / 1e6:.1f} | {result.epochs:.0f} "
            f"| {result.train_s / 60:.0f} | {result.stopped_by} "
            f"| {f'{max(early):.1f}' if early else ''} | {best:.1f} | {kept:.1f} | {result.bleu:.1f} |"
        )
    return "\n".join(lines)


@cache
def examples(folder: Path, corpus: str, numbers: tuple[int, ...]) -> str:
    """Return sentences of the first test set with their translations by the first seed of every model."""
    finished = load_finished(folder, data_root=corpus)
    test = finished.corpus.tests[0]
    split = finished.corpus.splits[test]
    texts = {"source": split.src, "reference": split.tgt}
    for label, runs in finished.labels.items():
        texts[label] = min(runs, key=lambda run: run.result.seed).outputs[test]
    rows = [
        {"sentence": str(number) if name == "source" else "", "of": name, "text": lines[number - 1]}
        for number in numbers
        for name, lines in texts.items()
    ]
    return table_text(rows, left={"of", "text"})


def _p(p: float) -> str:
    """Return a p-value for a column of its own."""
    return describe_p(p).removeprefix("p").removeprefix(" = ")


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
