"""The section of speeds, which rows alone can fill."""

from collections.abc import Iterator
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.seed_means import mean_over_seeds
from compare.analysis.table import Table
from compare.report.html.curves import bar_plot
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import Part, html_table
from compare.results.numbers import format_number

SPEEDS = {
    "train_tokens_per_s": "training: tokens/s",
    "beam_sentences_per_s": "beam search: sentences/s",
    "latency_ms_p50": "latency of one sentence (ms)",
}
"""Fields of a row that are drawn as bars, each with what its axis says."""
TIMES = (
    "train_tokens_per_s",
    "train_tgt_tokens_per_s",
    "train_mfu",
    "greedy_sentences_per_s",
    "beam_sentences_per_s",
    "decode_tokens_per_s",
    "latency_ms_p50",
    "latency_ms_p95",
    "peak_memory_bytes",
    "energy_j_per_1k_tokens",
    "data_s",
    "train_s",
    "validation_s",
    "checkpoint_s",
    "decode_s",
)
"""Fields of a row that stand in the table of speeds."""


def speed(finished: FinishedExperiment) -> Iterator[Part]:
    """Bars of the speeds that people ask for, and all of them as a table."""
    panels = {}
    for name, title in SPEEDS.items():
        known = {
            label: [value for run in runs if (value := getattr(run.result, name)) is not None]
            for label, runs in finished.labels.items()
        }
        if any(known.values()):
            panels[title] = known
    if panels:
        means = [
            f"{title}: "
            + "; ".join(f"{label} {format_number(fmean(own))}" for label, own in known.items() if own)
            for title, known in panels.items()
        ]
        description = f"Means over seeds. {'. '.join(means)}."
        yield embed_figure(
            bar_plot(panels), "speed-bars", "Speed of training and of translation", description
        )
    rows = [
        {
            "label": run.result.label,
            "seed": run.result.seed,
            **{name: getattr(run.result, name) for name in TIMES},
        }
        for run in finished.runs
    ]
    caption = (
        "Tokens are those of source and target, padding not counted; latency is of one sentence at a time; "
        "seconds are those of a run. Means over seeds."
    )
    yield html_table(mean_over_seeds(Table(caption, rows)), "Speed, memory and seconds")
