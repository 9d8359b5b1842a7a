"""The rule that chooses a length penalty, on cases worked out by hand."""

from typing import Any

import pytest

from compare.results.records import GridPoint, choose

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
