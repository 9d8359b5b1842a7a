"""Search and training with every preset at tiny size."""

from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from compare.decoding.length_penalty import LengthPenalty
from compare.decoding.search import Hypothesis, search
from compare.optim import OptimConfig, build_optimizer
from compare.training.loss import TranslationLoss
from tests.kits.contract import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    TRANSLATING,
    VARIANTS,
    float64,
    make,
    sharpen,
    sharpened,
    sources,
)

if TYPE_CHECKING:
    from compare.models.registry import Model

_float64 = pytest.fixture(autouse=True)(float64)
model = pytest.fixture(params=VARIANTS, ids="-".join)(sharpened)


# --- search over it


@cache
def varied(name: str, tie: str) -> "Model":
    """Sharpened by the first seed under which 64 sources get more than 8 translations between them."""
    lengths = tuple([3, 5, 7, 8] * 16)
    src, mask = sources(lengths, seed=9)
    for seed in range(200):
        model = make(name, tie).eval()
        sharpen(model, seed)
        found = search(model, src, mask, limits=torch.tensor(lengths), special=SPECIAL, beam_size=3)
        if len({tuple(one.tokens[:4]) for one in found}) > 8:
            return model
    raise AssertionError(f"{name}: no seed gives varied translations")


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("name", "tie"), TRANSLATING)
def test_search_does_not_depend_on_batch_order_or_padding(name: str, tie: str, beam: int):
    """64 sentences at once, shuffled, further padded and one of each length alone: same tokens and scores."""
    model = varied(name, tie)
    generator = torch.Generator().manual_seed(3)
    lengths = tuple((1 + torch.randint(0, 8, (64,), generator=generator)).tolist())
    (src, mask), (wide, wide_mask) = sources(lengths), sources(lengths, width=12)
    limits = torch.tensor(lengths) + 3

    def find(rows: Tensor, src: Tensor, mask: Tensor) -> list[Hypothesis]:
        return search(
            model,
            src[rows],
            mask[rows],
            limits=limits[rows],
            special=SPECIAL,
            beam_size=beam,
            penalty=LengthPenalty(0.7),
        )

    everyone = torch.arange(64)
    expected = find(everyone, src, mask)
    assert len({tuple(found.tokens) for found in expected}) > 4
    assert len({len(found.tokens) for found in expected}) > 1
    assert {BOS, EOS, PAD}.isdisjoint(token for found in expected for token in found.tokens)
    order = torch.randperm(64, generator=generator)
    shuffled = find(order, src, mask)
    one_of_each = {length: row for row, length in enumerate(lengths)}
    alone = {row: find(everyone[row : row + 1], src[:, :n], mask[:, :n])[0] for n, row in one_of_each.items()}
    assert len(alone) == 8
    others = {
        "padded": dict(enumerate(find(everyone, wide, wide_mask))),
        "shuffled": {int(row): found for row, found in zip(order, shuffled, strict=True)},
        "alone": alone,
    }
    for name, rows in others.items():
        found, same = list(rows.values()), [expected[row] for row in rows]
        assert [one.tokens for one in found] == [one.tokens for one in same], name
        scores = torch.tensor([[one.score for one in group] for group in (found, same)])
        torch.testing.assert_close(*scores, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_score_is_the_log_probability_of_its_tokens(model: "Model"):
    """Rescored by the full pass, which knows nothing of beams, caches or compaction."""
    src, mask = sources()
    model.output.weight.mul_(2.0)
    for found, row in zip(
        search(
            model,
            src,
            mask,
            limits=torch.full((4,), 7),
            special=SPECIAL,
            beam_size=3,
            penalty=LengthPenalty(0.6),
        ),
        range(4),
        strict=True,
    ):
        tgt_in = torch.tensor([[BOS, *found.tokens]])
        logp = model(src[row : row + 1], mask[row : row + 1], tgt_in)[0].log_softmax(dim=-1)
        total = logp[torch.arange(tgt_in.size(1)), torch.tensor([*found.tokens, EOS])].sum()
        score = total / ((5 + tgt_in.size(1)) / 6) ** 0.6
        assert found.score == pytest.approx(float(score), abs=1e-10)


# --- training it


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_thirty_updates_learn_to_copy(name: str, tie: str):
    losses = learn_to_copy(make(name, tie), updates=30, rate=1e-2)
    assert losses[0] == pytest.approx(2.6, abs=0.9)  # near ln V: nothing is known yet
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]


def learn_to_copy(model: "Model", *, updates: int, rate: float) -> list[float]:
    """Train on 24 short sentences; returns the loss per token of each update."""
    criterion = TranslationLoss(model, 0.0)
    optimizer = build_optimizer(criterion.parameters(), OptimConfig(learning_rate=rate))
    src, mask = sources(tuple([2, 3, 4] * 8), seed=4)
    tgt_in = torch.cat((torch.full((24, 1), BOS), src[:, :-1]), dim=1).masked_fill(~mask, PAD)
    losses = []
    for _ in range(updates):
        loss = criterion(src, mask, tgt_in, src, mask)
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.nll) / loss.tokens)
    return losses
