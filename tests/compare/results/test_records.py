"""Records beside a result: damage is one line that names file and value; the choice of a length penalty."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare.decoding.search import GridPoint, LengthPenalty, choose_penalty
from compare.results.records import (
    Likelihoods,
    LikelihoodSums,
    RecordedScores,
    Selection,
    read_external,
    read_likelihoods,
    read_selection,
)
from compare.results.store import write_record

PENALTIES = [LengthPenalty(alpha, "wu") for alpha in (0.0, 0.5, 1.0)]
SUMS = LikelihoodSums(nll=12.5, tokens=5, characters=20, unknown=1)
GRID = [
    GridPoint(normalization="wu", length_penalty=penalty.alpha, bleu=bleu, length_ratio=1.0)
    for penalty, bleu in zip(PENALTIES, (29.0, 30.0, 30.0), strict=True)
]
SELECTION = Selection(grid=GRID, chosen=choose_penalty(GRID), weights="0" * 64)
LIKELIHOODS = Likelihoods(
    tests={"test": SUMS, "test_long": SUMS}, weights="0" * 64, sentences={"test": [-7.25, -5.25]}
)
SCORES = RecordedScores(segments=[0.5, 1.0], signature="v:1", translations="0" * 64)
READERS: dict[str, tuple[Any, Callable[[Path], Any]]] = {
    "selection": (SELECTION, lambda path: read_selection(path, PENALTIES)),
    "likelihoods": (LIKELIHOODS, read_likelihoods),
    "external": ({"test": {"comet": SCORES}}, read_external),
}


def test_perplexities_by_hand():
    assert SUMS.perplexity == pytest.approx(math.exp(2.5))
    assert SUMS.char_perplexity == pytest.approx(math.exp(0.625))
    assert SELECTION.penalty == LengthPenalty(0.5, "wu")


@pytest.mark.parametrize("kind", READERS)
def test_what_is_written_is_read_back(kind: str, tmp_path: Path):
    record, read = READERS[kind]
    write_record(tmp_path / "record.json", record)
    assert read(tmp_path / "record.json") == record


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("selection", '"wu"', '"x"', "$.grid[0].normalization"),
        ("selection", '"length_penalty": 0.5', '"length_penalty": 0.6', "the grid differs from config.toml"),
        ("selection", '"chosen": 1', '"chosen": 2', "chosen is 2, but the rule gives 1"),
        ("likelihoods", '"tokens": 5', '"tokens": 0', "tokens"),
        ("external", "0.5,", "true,", "$[...]"),
        ("external", "}", "", "truncated"),
    ],
)
def test_damage_is_one_line(kind: str, old: str, new: str, message: str, tmp_path: Path):
    record, read = READERS[kind]
    path = tmp_path / "record.json"
    write_record(path, record)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"restore the original") as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_selection_says_what_to_do(tmp_path: Path):
    with pytest.raises(ValueError, match=r"selection\.json does not exist: run the experiment again"):
        read_selection(tmp_path / "selection.json", PENALTIES)


# The rule that chooses a length penalty, on cases worked out by hand.
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
    ],
)
def test_the_smallest_penalty_near_the_best_is_chosen(scores: tuple[float, ...], chosen: int):
    assert choose_penalty(grid(*scores)) == chosen
    backwards = grid(*scores, ratios=(1.1, 1.0, 0.9))
    assert choose_penalty(backwards) == chosen  # in one form alpha decides, not the length


def test_of_two_forms_the_shortest_is_chosen_then_the_smallest_alpha():
    wu = grid(30.0, 30.0, 30.0, ratios=(0.98, 0.99, 1.0))
    length = grid(30.0, 29.0, 30.0, form="length", ratios=(0.99, 0.9, 0.97))
    assert choose_penalty([*wu, *length]) == 5  # .97; .9 is a whole point below
    equal = grid(29.0, 30.0, 30.0, form="length", ratios=(0.9, 0.98, 1.0))
    assert choose_penalty([*grid(29.0, 29.0, 30.0, ratios=(0.9, 0.9, 0.98)), *equal]) == 4  # alpha .5, not 1
