"""Plots: correct numbers, readable labels, the same bytes every time."""

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from compare.attention.layers import group_pieces
from compare.attention.sentence_attention import SentenceAttention
from compare.report.figures import learning_curves, save_figure
from compare.training.metrics_log import read_metrics

METRICS = [
    {"kind": "train", "update": 50, "seconds": 5.0, "loss": 6.0, "src_tokens": 20, "tgt_tokens": 30},
    {"kind": "valid", "update": 100, "seconds": 11.0, "loss": 5.0, "bleu": 1.0},
    {"kind": "valid", "update": 200, "seconds": 19.0, "loss": 9.9, "bleu": 9.9},
    {"kind": "valid", "update": 150, "seconds": 16.0, "loss": 4.5, "bleu": None},
    {"kind": "valid", "update": 200, "seconds": 22.0, "loss": 4.0, "bleu": 3.0},
]


@pytest.mark.parametrize(("against", "x"), [("update", [100, 150, 200]), ("seconds", [11, 16, 22])])
def test_curves_show_validation_and_the_later_line_of_a_resumed_run(against, x):
    figure = learning_curves({"lstm": METRICS, "gru": []}, against=against)
    loss, bleu = figure.axes
    assert loss.lines[0].get_xydata().tolist() == [
        list(point) for point in zip(x, (5.0, 4.5, 4.0), strict=True)
    ]
    assert bleu.lines[0].get_xydata().tolist() == [[x[0], 1.0], [x[2], 3.0]]
    assert loss.lines[1].get_xydata().size == 0
    assert loss.lines[0].get_color() == bleu.lines[0].get_color() != loss.lines[1].get_color()


def test_the_legend_shows_every_label_unchanged():
    names = ["_lstm", "$x$ and $", "gru", *(f"model {number}" for number in range(9))]
    (legend,) = learning_curves(dict.fromkeys(names, METRICS)).legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert not any(text.get_parse_math() for text in legend.get_texts())
    looks = {(line.get_color(), line.get_marker()) for line in legend.get_lines()}
    assert len(looks) == len(names)  # twelve runs are distinguishable


def test_no_runs_is_an_error():
    with pytest.raises(ValueError, match="no runs to plot"):
        learning_curves({})


def heat_map(words: list[str], label: str) -> Figure:
    """Attention of each word to itself."""
    groups = group_pieces("words", words)
    weights = {"cross": np.eye(len(words), dtype=np.float32)[None]}
    return SentenceAttention(
        source="",
        translation="",
        src=words,
        tgt=words,
        weights=weights,
        src_words=groups,
        tgt_words=groups,
        label=label,
    ).plot()


def test_figures_are_valid_and_the_same_bytes_twice(tmp_path: Path):
    for name in ("one", "two"):
        save_figure(heat_map(["日本", "$a$", "<&>"], "a & b"), tmp_path / name / "map.v1")
        save_figure(learning_curves({"a": METRICS}), tmp_path / name / "curves")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["curves.png", "curves.svg", "map.v1.png", "map.v1.svg"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with Image.open(tmp_path / "one" / "curves.png") as image:
        image.verify()
        assert image.width > 1000
    text = "".join(ET.parse(tmp_path / "one" / "map.v1.svg").getroot().itertext())
    assert all(token in text for token in ("日本", "$a$", "<&>", "a & b"))
    assert "Date" not in (tmp_path / "one" / "curves.svg").read_text()


def test_labels_outside_the_axes_are_not_cut_off(tmp_path: Path):
    long, short = (
        save_figure(heat_map([token, "y", "z"], ""), tmp_path / str(len(token)))[0]
        for token in ("Donaudampfschifffahrt", "x")
    )
    with Image.open(long) as wide, Image.open(short) as narrow:
        assert wide.height > narrow.height + 100


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(learning_curves({"a": METRICS}), tmp_path / "curves")
    assert list(tmp_path.iterdir()) == []


def test_plots_change_no_global_settings(tmp_path: Path):
    before = dict(mpl.rcParams)
    save_figure(learning_curves({"a": METRICS}), tmp_path / "curves")
    assert dict(mpl.rcParams) == before


def test_metrics_tolerate_a_line_cut_off_by_the_end(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    whole = "".join(json.dumps(line) + "\n" for line in METRICS)
    path.write_text(whole)
    assert read_metrics(path) == METRICS
    path.write_text(whole + '{"kind": "va')
    assert read_metrics(path) == METRICS
    path.write_text('{"kind": "va\n' + whole)
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 1: not a JSON object"):
        read_metrics(path)
    path.write_text("")
    assert read_metrics(path) == []
