"""Best continuations by blocks of the vocabulary: equal to a stable sort of all, ties included."""

import pytest
import torch

from compare.decoding.beams import BLOCK, best_continuations

NEVER = float("-inf")


def by_sorting(scores: torch.Tensor, logp: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute sums and positions k * V + v by one stable sort: ties in order of position."""
    sums = (scores.unsqueeze(2) + logp).flatten(1)
    best, position = sums.sort(dim=1, descending=True, stable=True)
    return best[:, :count], position[:, :count]


@pytest.mark.parametrize("size", [2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 517])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("levels", [1, 3, 1_000_000])
def test_what_is_found_is_what_a_sort_of_everything_finds(size: int, beam: int, levels: int):
    """With few levels nearly all are tied, inside blocks, between blocks and between hypotheses."""
    random = torch.Generator().manual_seed(size + beam + levels)
    for _ in range(20):
        logp = -torch.randint(0, levels, (4, beam, size), generator=random).double()
        scores = -torch.randint(0, levels, (4, beam), generator=random).double()
        count = min(2 * beam, beam * size)
        found, parents, tokens = best_continuations(scores, logp, count)
        expected, position = by_sorting(scores, logp, count)
        assert torch.equal(found, expected)
        assert torch.equal(parents * size + tokens, position)


def test_impossible_ones_come_last_and_are_still_in_the_vocabulary():
    logp = torch.full((2, 3, 70), NEVER)
    logp[:, :, 68] = -1.0
    scores = torch.tensor([[0.0, NEVER, NEVER], [NEVER, 0.0, -0.5]])
    found, parents, tokens = best_continuations(scores, logp, 6)
    assert found[0].tolist() == [-1.0] + 5 * [NEVER]
    assert found[1].tolist() == [-1.0, -1.5] + 4 * [NEVER]
    assert (parents[0, 0], tokens[0, 0]) == (0, 68)
    assert parents[1, :2].tolist() == [1, 2]
    assert tokens.max() < 70
    assert parents.max() < 3
