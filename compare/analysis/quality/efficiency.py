"""What quality costs: validation BLEU as training goes on, and the models that no other beats."""

from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.table import Row, Table
from compare.training.metrics_log import read_metrics

COSTS = ("seconds", "updates", "tokens", "flops", "joules")
"""What training spends, as columns of ``progress``."""
BLEU_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the best BLEU, for ``time_to_quality``."""
SPEED, SIZE = "beam_sentences_per_s", "params"
"""Columns of ``pareto`` against which BLEU is set; speed is that of the search whose BLEU is reported."""


def progress(finished: FinishedExperiment) -> Table:
    """Validation loss and BLEU, and what training had cost by then, one row a run and validation.

    FLOPs are ``train_flops_per_token`` and joules ``energy_j_per_1k_tokens`` of the result times the tokens
    of both sides; None where the result has none.
    """
    rows = [row for run in finished.runs for row in _validations(run)]
    return Table("Validation (greedy search) as training goes on; validation's own seconds left out.", rows)


def time_to_quality(curves: Sequence[Row], shares: Sequence[float] = BLEU_SHARES) -> Table:
    """What each run had spent when it first reached shares of the best BLEU, one row a run and share.

    Args:
        curves: rows of ``progress``; the best BLEU is that of all of them.
        shares: of the best BLEU, 0 to 1.
    """
    best = max(row["bleu"] for row in curves)
    runs = dict.fromkeys((row["label"], row["seed"]) for row in curves)
    rows = []
    for share in shares:
        for label, seed in runs:
            own = (row for row in curves if (row["label"], row["seed"]) == (label, seed))
            first = next((row for row in own if row["bleu"] >= share * best), dict.fromkeys(COSTS))
            about = {"share_of_best": f"{100 * share:g}%", "bleu": share * best, "label": label, "seed": seed}
            rows.append({**about, **{cost: first[cost] for cost in COSTS}})
    caption = (
        f"Cost of the first validation whose BLEU is a share of the best of all runs ({best:.1f}); "
        "a dash where it never did."
    )
    return Table(caption, rows)


def pareto(finished: FinishedExperiment) -> Table:
    """Test BLEU, decoding speed and parameters, one row a label, and which models no other beats.

    Means over seeds, for BLEU the lowest and the highest too; a label that lacks a figure is left out.
    """
    rows = [row for label, runs in finished.labels.items() if (row := _mean_row(label, runs))]
    fast = pareto_front([(row[SPEED], row["bleu"]) for row in rows])
    small = pareto_front([(-row[SIZE], row["bleu"]) for row in rows])
    caption = (
        f"BLEU of {finished.corpus.tests[0]} against decoding speed and against size: a model is on a front "
        "if no other is better in one of the two and at least as good in the other."
    )
    fronts = [{"speed_front": a, "size_front": b} for a, b in zip(fast, small, strict=True)]
    return Table(caption, [row | front for row, front in zip(rows, fronts, strict=True)])


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which of ``points`` no other beats; larger is better in both coordinates, equals both stand."""
    return [not any(_beats(other, point) for other in points) for point in points]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether ``one`` is at least as good in both coordinates and better in one."""
    return one[0] >= other[0] and one[1] >= other[1] and one != other


def _mean_row(label: str, runs: Sequence[FinishedRun]) -> Row:
    """The figures of a label; empty where one is not known."""
    bleu, speed, size = (
        [value for run in runs if (value := getattr(run.result, name)) is not None]
        for name in ("bleu", SPEED, SIZE)
    )
    if not len(bleu) == len(speed) == len(size) == len(runs):
        return {}
    return {
        "label": label,
        "seeds": len(runs),
        "bleu": fmean(bleu),
        "bleu_low": min(bleu),
        "bleu_high": max(bleu),
        SPEED: fmean(speed),
        SIZE: size[0],
    }


def _validations(run: FinishedRun) -> list[Row]:
    """The rows of one run; where a resumed run logged an update twice, the later line holds."""
    lines = read_metrics(run.folder / "metrics.jsonl")
    valid = {line["update"]: line for line in lines if line["kind"] == "valid"}
    windows = {line["update"]: line for line in lines if line["kind"] == "train"}
    flops, energy = run.result.train_flops_per_token, run.result.energy_j_per_1k_tokens
    rows = []
    for update, line in sorted(valid.items()):
        before = [window for end, window in windows.items() if end <= update]
        tokens = sum(window["src_tokens"] + window["tgt_tokens"] for window in before)
        rows.append(
            {
                "label": run.result.label,
                "seed": run.result.seed,
                "seconds": line["seconds"],
                "updates": update,
                "tokens": tokens,
                "flops": None if flops is None else flops * tokens,
                "joules": None if energy is None else energy * tokens / 1000,
                "loss": line["loss"],
                "bleu": line["bleu"],
            }
        )
    return rows
