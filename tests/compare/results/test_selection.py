"""The rule that chooses a length penalty, on cases worked out by hand, and damage of selection.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from compare.decoding.length_penalty import LengthPenalty
from compare.results.records import GridPoint, Selection, choose, read_selection

ALPHAS = (0.0, 0.5, 1.0)


def grid(*scores: float, form: Any = "wu", ratios: tuple[float, ...] = (0.9, 1.0, 1.1)) -> list[GridPoint]:
    return [
        GridPoint(normalization=form, length_penalty=alpha, bleu=bleu, length_ratio=ratio)
        for alpha, bleu, ratio in zip(ALPHAS, scores, ratios, strict=True)
    ]


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ((30.0, 30.0, 30.0), 0),  # all equal
        ((29.75, 30.0, 29.5), 1),  # the first is .25 below
        ((29.875, 30.0, 29.5), 0),  # the first is within .2
        ((29.0, 29.875, 30.0), 1),  # the best is at the edge, its neighbour within .2
        ((20.0, 25.0, 30.0), 2),  # the best is at the edge, alone
        ((30.0, 25.0, 20.0), 0),
        ((29.875, 29.0, 30.0), 0),  # a dip between two good ones does not matter
        ((0.0, 0.0, 0.0), 0),
    ],
)
@pytest.mark.parametrize("form", ["wu", "length"])
def test_the_smallest_penalty_near_the_best_is_chosen(scores: tuple[float, ...], chosen: int, form: str):
    assert choose(grid(*scores, form=form)) == chosen
    backwards = grid(*scores, form=form, ratios=(1.1, 1.0, 0.9))
    assert choose(backwards) == chosen  # in one form alpha decides, not the length


def test_of_two_forms_the_shortest_is_chosen_then_the_smallest_alpha():
    wu = grid(30.0, 30.0, 30.0, ratios=(0.98, 0.99, 1.0))
    length = grid(30.0, 29.0, 30.0, form="length", ratios=(0.99, 0.9, 0.97))
    assert choose([*wu, *length]) == 5  # .97; .9 is a whole point below
    equal = grid(29.0, 30.0, 30.0, form="length", ratios=(0.9, 0.98, 1.0))
    assert choose([*grid(29.0, 29.0, 30.0, ratios=(0.9, 0.9, 0.98)), *equal]) == 4  # alpha .5, not 1


def test_what_is_written_is_read_back(tmp_path: Path):
    path, points = tmp_path / "selection.json", grid(29.0, 30.0, 30.0)
    selection = Selection(points, choose(points), "0" * 64)
    path.write_text(selection.to_json())
    assert read_selection(path, PENALTIES) == selection
    assert selection.penalty == LengthPenalty(0.5, "wu")


PENALTIES = [LengthPenalty(alpha, "wu") for alpha in ALPHAS]
POINT = {"normalization": "wu", "length_penalty": 0.5, "bleu": 1.0, "length_ratio": 1.0}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("grid", [], "grid is not that of config.toml"),
        ("grid", {}, "grid must be a list, found {}"),
        ("grid", [1, 2, 3], "grid[0] must hold normalization, length_penalty, bleu, length_ratio"),
        ("grid", [POINT] * 3, "grid is not that of config.toml"),
        ("grid", [{**POINT, "normalization": ["wu"]}] * 3, "grid[0].normalization is not a form: ['wu']"),
        ("grid", [{**POINT, "bleu": "x"}] * 3, "grid[0].bleu must be a number from 0 on, found 'x'"),
        ("grid", [{**POINT, "bleu": True}] * 3, "grid[0].bleu must be a number from 0 on, found True"),
        ("grid", [{**POINT, "length_ratio": -1}] * 3, "grid[0].length_ratio must be a number from 0 on"),
        ("chosen", 2, "chosen is 2, but the rule gives 1"),
        ("chosen", True, "chosen is True, but the rule gives 1"),
        ("chosen", None, "chosen is None, but the rule gives 1"),
        ("weights", 3, "weights must be a sha256, found 3"),
        ("more", 3, "it must hold grid, chosen, weights"),
    ],
)
def test_damage_is_named(tmp_path: Path, key: str, value: Any, message: str):
    path, points = tmp_path / "selection.json", grid(29.0, 30.0, 30.0)
    content = json.loads(Selection(points, 1, "0" * 64).to_json())
    path.write_text(json.dumps({**content, key: value}))
    with pytest.raises(ValueError, match="not what was chosen on validation") as caught:
        read_selection(path, PENALTIES)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "[1]", '{"grid": NaN}'])
def test_what_is_no_selection_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "selection.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"selection\.json: not what was chosen on validation \("):
        read_selection(path, PENALTIES)


def test_a_missing_file_says_what_to_do(tmp_path: Path):
    with pytest.raises(ValueError, match=r"selection\.json: no such file: run the experiment again"):
        read_selection(tmp_path / "selection.json", PENALTIES)
