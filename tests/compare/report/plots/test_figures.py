"""Figures of an analysis: lines, bands, fronts, counts and names."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from compare.analysis.efficiency import COSTS, SIZE, SPEED
from compare.report.figures import save_figure
from compare.report.plots import (
    FRONTS,
    SPENT,
    distance_plot,
    length_plot,
    pareto_plot,
    progress_plot,
    word_plot,
)

GROUPS = ("1–5", "6–10", "11–40")


def length_rows(label: str, seed: int, *bleu: float | None, column: str = "source_words") -> list[dict]:
    return [
        {
            "label": label,
            "seed": seed,
            column: group,
            "sentences": 1_000 * number,
            "bleu": score,
            "chrf": 50.0,
        }
        for number, (group, score) in enumerate(zip(GROUPS, bleu, strict=True), start=1)
    ]


def valid_rows(label: str, seed: int, *points: tuple[int, float, float]) -> list[dict]:
    return [
        {"label": label, "seed": seed, "updates": update, "bleu": bleu, "joules": None}
        | {"seconds": seconds, "tokens": 100 * seconds, "flops": 1e9 * seconds}
        for update, seconds, bleu in points
    ]


def model(label: str, bleu: float, speed: float, params: int, *fronts: bool) -> dict:
    spread = {"bleu_low": bleu - 1, "bleu_high": bleu + 2}
    on_front = dict(zip(("speed_front", "size_front"), fronts, strict=True))
    return {"label": label, "bleu": bleu, SPEED: speed, SIZE: params, **spread, **on_front}


def legend_texts(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_line_is_the_mean_of_its_seeds_in_a_band_from_lowest_to_highest():
    rows = [*length_rows("a", 1, 10, 20, 30), *length_rows("b", 1, 1, 2, 3), *length_rows("a", 2, 20, 40, 30)]
    figure = length_plot(rows)
    bleu, chrf = figure.axes
    assert [line.get_ydata().tolist() for line in bleu.lines] == [[15, 30, 30], [1, 2, 3]]
    assert [line.get_xdata().tolist() for line in bleu.lines] == [[0, 1, 2]] * 2
    (band,) = bleu.collections  # "b" has one seed, and chrF does not differ
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(0, 10), (0, 20), (1, 20), (1, 40), (2, 30)}
    assert len(chrf.collections) == 0
    assert [axes.get_ylabel() for axes in figure.axes] == ["BLEU", "chrF"]
    assert legend_texts(figure) == ["a", "b"]


def test_each_group_shows_how_many_it_has():
    rows = length_rows("a", 1, 10, 20, 30)
    labels = [label.get_text() for label in length_plot(rows).axes[1].get_xticklabels()]
    assert labels == ["1–5\n(1,000)", "6–10\n(2,000)", "11–40\n(3,000)"]


def test_groups_without_a_value_are_left_out():
    rows = length_rows("a", 1, 10, None, 30)
    (line,) = length_plot(rows).axes[0].lines
    assert line.get_xydata().tolist() == [[0, 10], [2, 30]]


def test_distances_and_words_are_drawn_alike():
    rows = length_rows("a", 1, 3, 2, 1, column="distance_words")
    assert distance_plot(rows).axes[0].lines[0].get_ydata().tolist() == [3, 2, 1]
    words = [
        {"label": "a", "training_count": name, "ref_words": 5, "recall_percent": rate, "precision_percent": 9}
        for name, rate in (("0", 10), ("1–4", 20))
    ]
    recall, precision = word_plot(words).axes
    assert (recall.lines[0].get_ydata().tolist(), precision.lines[0].get_ydata().tolist()) == (
        [10, 20],
        [9, 9],
    )
    assert [label.get_text() for label in recall.get_xticklabels()] == ["0\n(5)", "1–4\n(5)"]


def test_progress_is_the_mean_of_cost_and_bleu_at_updates_of_all_seeds():
    rows = valid_rows("a", 1, (10, 4.0, 20.0), (20, 8.0, 30.0), (30, 12.0, 90.0))
    rows += valid_rows("a", 2, (10, 6.0, 10.0), (20, 12.0, 32.0))  # stopped early
    rows += valid_rows("b", 1, (10, 1.0, 5.0))
    (axes,) = progress_plot(rows, "seconds").axes
    assert axes.lines[0].get_xydata().tolist() == [[5, 15], [10, 31]]
    assert axes.lines[1].get_xydata().tolist() == [[1, 5]]
    assert len(axes.collections) == 1
    assert axes.get_xlim()[0] == 0
    (updates,) = progress_plot(rows, "updates").axes
    assert updates.lines[0].get_xdata().tolist() == [10, 20]
    (flops,) = progress_plot(rows, "flops").axes
    assert flops.lines[0].get_xdata().tolist() == [5e9, 1e10]


def test_every_cost_of_the_analysis_has_an_axis():
    assert tuple(SPENT) == COSTS
    assert tuple(FRONTS) == (SPEED, SIZE)


def test_joules_that_were_not_measured_cannot_be_drawn():
    rows = valid_rows("gru", 1, (10, 4.0, 20.0))
    with pytest.raises(ValueError, match="gru: joules were not recorded in training; choose another axis"):
        progress_plot(rows, "joules")


MODELS = [
    model("slow", 40, 10, 9_000_000, True, True),
    model("tiny", 30, 20, 1_000_000, True, True),
    model("bad", 20, 15, 2_000_000, False, False),
]


def test_a_front_has_steps_that_some_model_reaches():
    (axes,) = pareto_plot(MODELS, SPEED).axes
    *points, front = axes.lines
    assert [line.get_xydata().tolist() for line in points] == [[[10, 40]], [[20, 30]], [[15, 20]]]
    assert front.get_xydata().tolist() == [[10, 40], [20, 30]]
    # Whoever needs 15 sentences per second gets the 30 BLEU of "tiny": the step takes the value on its right.
    assert front.get_drawstyle() == "steps-pre"
    (axes,) = pareto_plot(MODELS, SIZE).axes
    front = axes.lines[-1]
    assert front.get_xydata().tolist() == [[1_000_000, 30], [9_000_000, 40]]
    # Whoever can afford 5 million parameters gets the 30 BLEU of "tiny": the value on its left.
    assert front.get_drawstyle() == "steps-post"


def test_a_dominated_model_is_hollow_and_seeds_are_a_line():
    (axes,) = pareto_plot(MODELS, SPEED).axes
    faces = [mpl.colors.to_hex(line.get_markerfacecolor()) for line in axes.lines[:3]]
    edges = [mpl.colors.to_hex(line.get_color()) for line in axes.lines[:3]]
    assert faces == [*edges[:2], "#ffffff"]
    spans = [segment.tolist() for lines in axes.collections for segment in lines.get_segments()]
    assert spans == [[[10, 39], [10, 42]], [[20, 29], [20, 32]], [[15, 19], [15, 22]]]


def test_the_spread_of_a_speed_is_a_horizontal_line():
    ends = {"beam_sentences_per_s_low": 8.0, "beam_sentences_per_s_high": 11.0}
    (axes,) = pareto_plot([{**MODELS[0], **ends}], SPEED).axes
    assert axes.collections[1].get_segments()[0].tolist() == [[8, 40], [11, 40]]


def test_a_wide_range_has_a_logarithmic_axis():
    near = [model("a", 1, 10, 5_000_000, True, True), model("b", 2, 11, 6_000_000, True, True)]
    far = [*near, model("c", 3, 1, 60_000_000, True, True)]
    assert pareto_plot(near, SIZE).axes[0].get_xscale() == "linear"
    figure = pareto_plot(far, SIZE)
    assert figure.axes[0].get_xscale() == "log"
    figure.draw_without_rendering()
    tick_labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert {"5M", "10M", "20M", "50M"} <= set(tick_labels)


def test_twenty_models_are_distinguishable_and_all_are_named(tmp_path: Path):
    labels = ["_hidden", "$x$", *(f"model-{number}" for number in range(18))]
    rows = [row for label in labels for seed in (1, 2) for row in length_rows(label, seed, 9, seed, seed)]
    figure = length_plot(rows)
    assert legend_texts(figure) == labels
    (legend,) = figure.legends
    assert not any(text.get_parse_math() for text in legend.get_texts())
    looks = [(line.get_color(), line.get_marker()) for line in legend.get_lines()]
    assert looks == [(line.get_color(), line.get_marker()) for line in figure.axes[1].lines]
    assert len(set(looks)) == 20
    assert len({marker for _, marker in looks[:8]}) == 8  # distinguishable without colours too
    png, _ = save_figure(figure, tmp_path / "lengths")
    with Image.open(png) as image:
        assert image.height > 600  # four legend rows are below the panels, which keep their size
    panel = figure.axes[0].get_window_extent()
    few = length_plot(rows[:6])
    few.draw_without_rendering()
    assert panel.height == pytest.approx(few.axes[0].get_window_extent().height, rel=0.1)


@pytest.mark.parametrize("draw", [length_plot, distance_plot, word_plot])
def test_no_rows_is_an_error(draw):
    with pytest.raises(ValueError, match="nothing to plot: the table has no rows"):
        draw([])
    with pytest.raises(ValueError, match="nothing to plot"):
        progress_plot([], "seconds")
    with pytest.raises(ValueError, match="nothing to plot"):
        pareto_plot([], SIZE)
