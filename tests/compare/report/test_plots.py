"""Figures: correct numbers, readable labels, the same bytes every time, one by name, one sentence."""

import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import compare
from compare import draw_attention
from compare.analysis.efficiency import SIZE, SPEED
from compare.analysis.finished_experiment import load_finished
from compare.cli import main
from compare.models.presets import PRESETS
from compare.models.styles import LUONG, OTHER, PLAIN, RECURRENT, TRANSFORMER, style_of, styles_of
from compare.report.drawing import curves_plot, draw, pareto_plot, quality_bars, save_figure
from compare.report.figures import FIGURES
from compare.report.plots import PLOTS, draw_figure, draw_plots
from tests.kits.common import ROOT, Refusal
from tests.kits.experiments import edit_text

GROUPS = ("1–5", "6–10", "11–40")


def length_rows(label: str, seed: int, *bleu: float | None) -> list[dict]:
    return [
        {"label": label, "seed": seed, "source_words": group, "sentences": 1_000 * number} | {"bleu": score}
        for number, (group, score) in enumerate(zip(GROUPS, bleu, strict=True), start=1)
    ]


def length_plot(rows: list[dict]) -> Figure:
    return PLOTS["length"].plot(rows, {})


def valid_rows(label: str, seed: int, *points: tuple[int, float, float | None]) -> list[dict]:
    return [
        {"label": label, "seed": seed, "updates": update, "bleu": bleu, "joules": None, "loss": 100 - update}
        | {"minutes": minutes, "tokens": 100 * minutes, "flops": 1e9 * minutes}
        for update, minutes, bleu in points
    ]


def model(label: str, bleu: float, speed: float, params: int, *fronts: bool) -> dict:
    spread = {"bleu_low": bleu - 1, "bleu_high": bleu + 2}
    on_front = dict(zip(("speed_front", "size_front"), fronts, strict=True))
    return {"label": label, "bleu": bleu, SPEED: speed, SIZE: params, **spread, **on_front}


def data_of(figure: Figure, panel: int = 0) -> list[list[list[float]]]:
    return [line.get_xydata().tolist() for line in figure.axes[panel].lines]


def test_a_line_is_the_mean_of_its_seeds_in_a_band_from_lowest_to_highest():
    rows = [*length_rows("a", 1, 10, 20, 30), *length_rows("b", 1, 1, None, 3)]
    figure = length_plot([*rows, *length_rows("a", 2, 20, 40, 30)])
    (bleu,) = figure.axes
    assert data_of(figure) == [[[0, 15], [1, 30], [2, 30]], [[0, 1], [2, 3]]]  # without what is not known
    (band,) = bleu.collections  # "b" has one seed
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(0, 10), (0, 20), (1, 20), (1, 40), (2, 30)}
    assert bleu.get_ylabel() == "BLEU"
    labels = [label.get_text() for label in bleu.get_xticklabels()]
    assert labels == ["1–5\n(1,000)", "6–10\n(2,000)", "11–40\n(3,000)"]
    with pytest.raises(ValueError, match="nothing to plot: the table has no rows"):
        length_plot([])


def test_progress_is_the_mean_of_cost_and_figure_at_updates_of_all_seeds():
    rows = valid_rows("a", 1, (10, 4.0, 20.0), (20, 8.0, 30.0), (30, 12.0, 90.0))
    rows += valid_rows("a", 2, (10, 6.0, 10.0), (20, 12.0, 32.0))  # stopped early
    rows += valid_rows("b", 1, (10, 1.0, 5.0))
    bleu = {"bleu": "validation BLEU"}
    assert data_of(curves_plot(rows, {}, "minutes", bleu)) == [[[5, 15], [10, 31]], [[1, 5]]]
    assert data_of(curves_plot(rows, {}, "flops", bleu))[0] == [[5e9, 15], [1e10, 31]]
    curves = curves_plot(rows, {}, "updates")
    assert data_of(curves) == [[[10, 90], [20, 80]], [[10, 90]]]
    assert data_of(curves, 1) == [[[10, 15], [20, 31]], [[10, 5]]]
    modelling = valid_rows("lm", 1, (10, 4.0, None))
    assert len(curves_plot(modelling, {}, "minutes").axes) == 1  # language models have no BLEU
    with pytest.raises(ValueError, match="language models have no BLEU"):
        curves_plot(modelling, {}, "minutes", bleu)
    with pytest.raises(ValueError, match="a: joules were not recorded in training; choose another axis"):
        curves_plot(rows, {}, "joules", bleu)


def test_a_front_has_steps_that_some_model_reaches():
    """Whoever needs 15 sentences/s gets the 30 BLEU of "tiny", and so does who can afford 5 M parameters."""
    models = [
        model("slow", 40, 10, 9_000_000, True, True),
        model("tiny", 30, 20, 1_000_000, True, True),
        model("bad", 20, 15, 2_000_000, False, False),
    ]
    figure = pareto_plot(models, {}, SPEED)
    assert data_of(figure) == [[[10, 40]], [[20, 30]], [[15, 20]], [[10, 40], [20, 30]]]
    assert figure.axes[0].lines[-1].get_drawstyle() == "steps-pre"
    front = pareto_plot(models, {}, SIZE).axes[0].lines[-1]
    assert front.get_xydata().tolist() == [[1_000_000, 30], [9_000_000, 40]]
    assert front.get_drawstyle() == "steps-post"
    points = figure.axes[0].lines[:3]
    edges = [mpl.colors.to_hex(line.get_color()) for line in points]
    assert [mpl.colors.to_hex(line.get_markerfacecolor()) for line in points] == [*edges[:2], "#ffffff"]
    spans = [span.tolist() for lines in figure.axes[0].collections for span in lines.get_segments()]
    assert spans == [[[10, 39], [10, 42]], [[20, 29], [20, 32]], [[15, 19], [15, 22]]]
    (axes,) = pareto_plot([models[0] | {f"{SPEED}_low": 8.0, f"{SPEED}_high": 11.0}], {}, SPEED).axes
    assert axes.collections[1].get_segments()[0].tolist() == [[8, 40], [11, 40]]
    figure = pareto_plot([*models, model("c", 3, 1, 60_000_000, True, True)], {}, SIZE)  # a wide range
    assert figure.axes[0].get_xscale() == "log"
    figure.draw_without_rendering()
    assert {"5M", "50M"} <= {label.get_text() for label in figure.axes[0].get_xticklabels()}


def test_a_family_has_one_colour_and_its_models_differ_without_colours_too():
    presets = ["lstm", "bahdanau", "luong-dot", "luong-general", "transformer", "transformer-learned"]
    styles = styles_of({name: PRESETS[name].architecture for name in [*presets, "rnn-transformer"]})
    assert [styles[name] for name in presets] == [
        *(style_of(family) for family in (PLAIN, RECURRENT, LUONG)),
        style_of(LUONG, 1),
        style_of(TRANSFORMER),
        style_of(TRANSFORMER, 1),
    ]
    assert styles["rnn-transformer"] == style_of(OTHER)
    alone = styles_of({"mine": PRESETS["luong-general"].architecture})
    assert alone["mine"] == styles["luong-dot"]  # the first of its family, whatever else is drawn
    looks = [style_of(LUONG, number) for number in range(32)]
    assert len({look[1:] for look in looks}) == 32
    assert len({look.color for look in looks}) == 4


def test_all_models_are_named_literally_and_the_caption_says_what_a_band_is():
    labels = ["_hidden", "$x$", *(f"model-{number}" for number in range(18))]
    rows = [row for label in labels for seed in (1, 2) for row in length_rows(label, seed, 9, seed, seed)]
    (legend,) = length_plot(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == labels
    assert not any(text.get_parse_math() for text in legend.get_texts())
    assert "Band" in legend.get_title().get_text()
    (legend,) = length_plot(rows[:3]).legends  # one seed
    assert "Band" not in legend.get_title().get_text()


def test_nothing_is_drawn_against_a_quantity_that_was_made_equal():
    equal = [model("a", 40, 10, 1_000_000, True, True), model("b", 30, 20, 1_015_000, True, False)]
    with pytest.raises(ValueError, match="no figure against parameters: equal within 2%, 1,000,000 to"):
        pareto_plot(equal, {}, SIZE)
    assert pareto_plot(equal[:1], {}, SIZE).axes


def test_files_are_valid_and_the_same_twice(tmp_path: Path):
    before = dict(mpl.rcParams)
    rows = length_rows("日本 $a$ <&>", 1, 1, 2, 3)
    for name in ("one", "two"):
        save_figure(length_plot(rows), tmp_path / name / "map.v1", ("png", "svg", "pdf"))
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["map.v1.pdf", "map.v1.png", "map.v1.svg"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert "日本 $a$ <&>" in "".join(ET.parse(tmp_path / "one" / "map.v1.svg").getroot().itertext())
    assert dict(mpl.rcParams) == before


def test_settings_of_the_user_change_no_picture():
    rows, odd = (
        length_rows("a", 1, 1, 2, 3),
        {"text.usetex": True, "font.size": 90, "savefig.transparent": True},
    )
    usual = draw(length_plot(rows), "svg")
    with mpl.rc_context({**odd, "lines.linewidth": 20, "axes.grid": True, "svg.fonttype": "path"}):
        assert draw(length_plot(rows), "svg") == usual


def test_a_bar_is_of_the_minutes_to_a_level():
    rows = [
        {"label": "a", "minutes_to_35": 5.0, "minutes_to_39": 8.0},
        {"label": "b", "minutes_to_35": 7.0, "minutes_to_39": None},
    ]
    figure = quality_bars(rows, {})
    assert [axes.get_xlabel() for axes in figure.axes] == ["minutes to 35 BLEU", "minutes to 39 BLEU"]
    assert [[bar.get_width() for bar in axes.patches] for axes in figure.axes] == [[5.0, 7.0], [8.0]]
    with pytest.raises(ValueError, match="no model has reached"):
        quality_bars([{"label": "a", "minutes_to_35": None}], {})


# Quality against the cost of training, over several budgets.


def budget_rows(label: str, seed: int, *bleu: float) -> list[dict]:
    against = ["steep", "absent"] if label == "flat" else []
    return [
        {"label": label, "seed": seed, "updates": 1000 * 2**n, "flops": 1e14 * 2**n, "minutes": 2.0**n}
        | {"bleu": score, "loss": 40 - score, "outcome": "the mean of 3 test sets", "against": against}
        for n, score in enumerate(bleu)
    ]


COST_ROWS = [
    row
    for seed, shift in ((1, -0.2), (2, 0.0), (3, 0.2))
    for label, bleu in (("flat", (30, 31, 32)), ("steep", (28, 30.5, 33)), ("low", (29, 9, 9)))
    for row in budget_rows(label, seed, *(score + shift for score in bleu))
]


def test_a_cost_plot_has_bands_labels_and_each_crossing():
    """The lead of steep is -2, -0.5, 1: the lines cross a third of the way between the last two points."""
    figure = PLOTS["cost"].plot(COST_ROWS, {})
    panel, strip = figure.axes
    assert (
        panel.get_title(loc="left") == "flat has the highest BLEU up to 2.5e14 training FLOPs, steep beyond"
    )
    assert panel.get_ylabel() == "BLEU, mean of 3 test sets"
    assert (panel.get_xscale(), strip.get_xlabel()) == ("log", "training FLOPs")
    assert panel.lines[1].get_xydata().tolist() == [[1e14, 28], [2e14, 30.5], [4e14, 33]]
    (circle,) = panel.lines[-1].get_xydata().tolist()
    assert circle == pytest.approx([2e14 * 2 ** (1 / 3), 31 + 1 / 3])
    low, high = panel.get_ylim()
    assert low < 9 < 33 < high
    names = [text.get_text() for text in panel.texts]
    assert names == ["low", "flat", "steep"]
    assert [text.get_position()[1] for text in panel.texts] == pytest.approx([9, 32, 33.4], abs=0.2)  # apart
    (text,) = strip.texts  # only planned pairs are marked: low and steep are none
    assert text.get_text().startswith("flat × steep: 2.5e14 (")
    (interval,) = strip.collections[0].get_segments()
    assert interval[0, 0] < circle[0] < interval[1, 0]


def test_a_cost_plot_of_updates_or_loss():
    figure = PLOTS["cost-updates"].plot(COST_ROWS, {})
    assert figure.axes[0].lines[0].get_xdata() == pytest.approx([1_000, 2_000, 4_000])
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()] == ["1,000", "2,000", "4,000"]
    panel = PLOTS["cost-loss"].plot(COST_ROWS, {}).axes[0]
    assert panel.get_title(loc="left").startswith("flat has the lowest validation loss up to 2.5e14")
    assert panel.lines[0].get_ydata() == pytest.approx([10, 9, 8])
    no_bleu = [row | {"bleu": None} for row in COST_ROWS]
    with pytest.raises(ValueError, match="language models have no BLEU"):
        PLOTS["cost"].plot(no_bleu, {})
    assert len(PLOTS["cost-loss"].plot(no_bleu, {}).axes) == 2
    bad = PLOTS["cost"].plot([row | {"bleu": row["bleu"] / 10} for row in COST_ROWS], {})
    assert (len(bad.axes), bad.axes[0].get_title(loc="left")) == (1, "No model translates yet")
    alone = PLOTS["cost"].plot([row for row in COST_ROWS if row["label"] == "steep"], {})
    assert (len(alone.axes), alone.axes[0].get_title(loc="left")) == (1, "")


# Figures of an experiment by name.

CURVES = {"learning-updates", "learning-minutes"}


def test_each_figure_is_drawn_alone(copied: Path):
    shutil.copy(ROOT / "results" / "grammar" / "trials.jsonl", copied)
    assert [*PLOTS, "attention"] == list(FIGURES)
    for kind in PLOTS:
        if kind != "cost-joules":
            (svg,) = draw_figure(copied, kind, ["svg"], out=copied / "plots")
            assert b"<svg" in svg.read_bytes()


def test_without_its_corpus_an_experiment_has_curves_but_no_heat_maps(copy: Path, tmp_path: Path, caplog):
    """And with it, heat maps are of the lowest seed that has weights."""
    caplog.set_level("INFO")
    later = Path(shutil.copytree(copy / "luong-seed1", copy / "luong-seed2"))
    edit_text(later / "config.toml", "\nseed = 1", "\nseed = 2")
    edit_text(later / "result.json", '"seed": 1', '"seed": 2')
    shutil.rmtree(copy / "luong-seed1" / "checkpoints")
    assert tmp_path / "attention-luong-line1.png" in draw_plots(copy, out=tmp_path)
    root = load_finished(copy).runs[0].run.data.root
    for config in copy.glob("*/config.toml"):
        edit_text(config, root, "gone")
    assert {path.name.split(".")[0] for path in draw_plots(copy, out=tmp_path)} == CURVES
    assert "no heat maps of attention: " in caplog.text
    assert draw_figure(copy, "learning-updates", ["svg"], out=tmp_path)
    assert draw_figure(copy, "learning-updates", out=tmp_path / "a.svg") == [tmp_path / "a.svg"]
    with pytest.raises(FileNotFoundError):
        draw_figure(copy, "length", ["svg"], out=tmp_path)


def test_curves_of_the_command_have_a_line_per_model(made: Path, tmp_path: Path):
    written = draw_plots(made, out=tmp_path)
    assert {path.name for path in written} == {f"{name}.{end}" for name in CURVES for end in ("png", "svg")}
    text = (tmp_path / "learning-updates.svg").read_text()
    assert [text.count(f">{label}<") for label in ("lstm", "rnn", "transformer")] == [1, 1, 1]
    assert "seed1" not in text


# Attention of one sentence.

SENTENCE = "small unheard cat"


def plot(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[Path]:
    """The files that the command names."""
    assert main(["plot", *map(str, arguments), "-q"]) == 0
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def has_words(svg: Path, *words: str) -> bool:
    return all(f">{word}<" in svg.read_text() for word in words)


def test_a_sentence_has_figures_of_its_own_with_the_users_words(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    files = plot(capsys, copy, "--sentence", SENTENCE)
    assert [path.name.rsplit("-", 1)[0] for path in files] == [
        f"attention-{label}-small-unheard-cat" for label in ("luong", "transformer") for _ in range(2)
    ]
    assert "luong, BLEU " in files[1].read_text()
    assert has_words(files[1], SENTENCE, "small", "unheard", "source", "translation")
    assert "unk" not in files[1].read_text().split("translation")[0]  # not among the words of the source
    assert has_words(files[3], *(f"layer 1, {head}" for head in ("head 1", "head 2", "mean")))
    other = plot(capsys, copy, "attention", "--sentence", f"{SENTENCE} .", "--only", "luong")
    assert len(other) == 2
    assert not set(other) & set(files)  # nothing is replaced


def test_one_file_in_the_format_of_its_ending_or_a_test_line_of_a_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = finished / "luong-seed1"
    for name, start in (("a.pdf", b"%PDF"), ("b.png", b"\x89PNG"), ("c.svg", b"<?xml"), ("d.html", b"<!DOC")):
        out = tmp_path / "new" / name
        assert plot(capsys, run, "attention", "--sentence", SENTENCE, "--out", out) == [out]
        assert out.read_bytes().startswith(start)
    page = tmp_path / "all.html"
    assert plot(capsys, finished, "--sentence", SENTENCE, "--out", page) == [page]
    assert all(f"<h2>{label} <small>BLEU " in page.read_text() for label in ("luong", "transformer"))
    line = load_finished(finished).corpus.splits["test"].src[1]
    arguments = ("--line", "2", "--only", "luong-seed1", "--format", "svg,html", "--out", tmp_path)
    page, svg = plot(capsys, run, *arguments)
    assert (page.name, svg.name) == ("attention-luong-seed1-line2.html", "attention-luong-seed1-line2.svg")
    assert has_words(svg, *line.split())
    assert "luong-seed1, BLEU " in svg.read_text()


def test_attention_of_a_given_translation_has_its_words_as_rows(copy: Path, capsys):
    translation = "Baum Unbekanntes"
    files = plot(capsys, copy, "--sentence", SENTENCE, "--translation", translation, "--only", "luong")
    assert has_words(files[1], f"→ {translation}", *translation.split(), "&lt;eos&gt;")
    attention = compare.load_model(copy / "luong-seed1")
    attended = attention.attend(SENTENCE)
    again = attention.attend(SENTENCE, attended.translation)
    assert again.tgt == attended.tgt
    np.testing.assert_allclose(again.weights["cross"], attended.weights["cross"], atol=1e-6)


def test_a_model_without_attention_is_left_out_unless_it_is_the_only_one(copy: Path, monkeypatch, tmp_path):
    attend = compare.Translator.attend

    def without(self: compare.Translator, *texts: str | None):
        attended = attend(self, *texts)
        return attended if self.label == "luong" else replace(attended, weights={})

    monkeypatch.setattr(compare.Translator, "attend", without)
    assert len(draw_attention(copy, SENTENCE, formats=["svg"], out=tmp_path)) == 1
    with pytest.raises(ValueError, match="transformer has no attention to the source"):
        draw_attention(copy, SENTENCE, model="transformer", out=tmp_path)


CASES = {
    "--line|9": "line 9 is not in test, which has ",
    "--sentence| ": "the sentence must be one line that is not empty",
    "--format|pdf": "--format is for one figure",
    "length|--line|2": "--sentence, --translation, --line and --only have no effect on length",
    "--sentence|a|--line|2": "--sentence and --line exclude each other",
    "--sentence|a|--only|luon": "no finished model is labelled 'luon'; did you mean 'luong'?",
    "--sentence|a|--out|x.jpg": "no format 'jpg': choose from png, svg, pdf, html",
    "--sentence|a|--out|x.png": "x.png can show one model, but there are 2: choose one of luong, transformer",
    "length|--format|gif": "no format 'gif': choose from png, svg, pdf",
    "lenght": "no figure 'lenght'; did you mean 'length'?",
    "tuning": "no trials of a search",
}
"""Part of the message by arguments, which are separated by bars."""


def test_nothing_is_ignored(finished: Path, refusal: Refusal, tmp_path: Path):
    for arguments, message in CASES.items():
        assert message in refusal("plot", finished, *arguments.split("|"))
    run = Path(shutil.copytree(finished / "luong-seed1", tmp_path / "exp" / "luong-seed1"))
    shutil.rmtree(run / "checkpoints")  # published folders lack them
    assert "has no weights" in refusal("plot", run, "--sentence", "a", "--out", tmp_path)
