"""The contract of compare/protocol.py, search and training, for every preset at tiny size."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from compare.decoding.search import Hypothesis, LengthPenalty, search
from compare.experiment.verify import CHECKS, check_gradients, check_saving, check_seed
from compare.optim import OptimConfig, build_optimizer
from compare.training.loss import TranslationLoss
from seq2seq.config import RecurrentLanguageModelConfig
from tests.kits.contract import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    TRANSLATING,
    VARIANTS,
    V,
    make,
    seeded_float64,
    sharpen,
    sharpened,
    sources,
    targets,
    tiny,
)

if TYPE_CHECKING:
    from compare.models.registry import Model

_float64 = pytest.fixture(autouse=True)(seeded_float64)
model = pytest.fixture(params=VARIANTS, ids="-".join)(sharpened)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_it_holds_to_the_contract(check: "Callable[..., None]", model: "Model"):
    check(model, *sources(width=7), targets())


def test_ties_share_storage():
    for name, tie in TRANSLATING:
        model = make(name, tie)
        if "tie" in tiny(name).settings():
            embeddings = [
                module.weight
                for module in model.modules()
                if isinstance(module, nn.Embedding) and module.num_embeddings <= V  # of tokens, not positions
            ]
            assert any(weight is model.output.weight for weight in embeddings), name
            assert (len({id(weight) for weight in embeddings}) == 1) == (tie == "all"), name


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_seed_weights_and_gradients(name: str, tie: str):
    """The seed decides the weights, saved ones are those of the model, and each has a gradient."""
    check_seed(lambda seed: make(name, tie, seed))
    one, other = make(name, tie).eval(), make(name, tie).eval()
    sharpen(one, seed=5)
    sharpen(other, seed=6)
    check_saving(one, other)
    check_gradients(make(name, tie))


def test_dropout_acts_in_training_and_attention_is_reported(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    has_none = isinstance(model.config, RecurrentLanguageModelConfig)
    expected = not has_none and getattr(model.config, "attention", "") is not None
    assert bool(model.attention(src, mask, tgt_in)) == expected
    model.train()
    assert not torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))


@cache
def varied(name: str, tie: str) -> "Model":
    """Sharpened by the first seed under which 64 sources get more than 8 translations between them."""
    lengths = tuple([3, 5, 7, 8] * 16)
    src, mask = sources(lengths, seed=9)
    for seed in range(118, 300):  # none below serves rnn-transformer
        model = make(name, tie).eval()
        sharpen(model, seed)
        found = search(model, src, mask, limits=torch.tensor(lengths), special=SPECIAL, beam_size=3)
        if len({tuple(one.tokens[:4]) for one in found}) > 8:
            return model
    raise AssertionError(f"{name}: no seed gives varied translations")


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("name", "tie"), TRANSLATING)
def test_search_does_not_depend_on_batch_order_or_padding(name: str, tie: str, beam: int):
    """64 sentences at once, shuffled, further padded and alone: same tokens and scores."""
    model, generator = varied(name, tie), torch.Generator().manual_seed(3)
    lengths = tuple((1 + torch.randint(0, 8, (64,), generator=generator)).tolist())
    (src, mask), (wide, wide_mask) = sources(lengths), sources(lengths, width=12)
    limits = torch.tensor(lengths) + 3

    def find(rows: Tensor, src: Tensor, mask: Tensor) -> list[Hypothesis]:
        settings = {"special": SPECIAL, "beam_size": beam, "penalty": LengthPenalty(0.7)}
        return search(model, src[rows], mask[rows], limits=limits[rows], **settings)

    everyone, order = torch.arange(64), torch.randperm(64, generator=generator)
    expected = find(everyone, src, mask)
    assert len({tuple(found.tokens) for found in expected}) > 4
    assert len({len(found.tokens) for found in expected}) > 1
    assert {BOS, EOS, PAD}.isdisjoint(token for found in expected for token in found.tokens)
    pairs = list(zip(find(everyone, wide, wide_mask), expected, strict=True))
    pairs += [(found, expected[row]) for row, found in zip(order, find(order, src, mask), strict=True)]
    for row, length in enumerate(lengths[:8]):
        pairs += [(find(everyone[row : row + 1], src[:, :length], mask[:, :length])[0], expected[row])]
    for found, same in pairs:
        assert found.tokens == same.tokens
        assert found.score == pytest.approx(same.score, rel=0, abs=1e-10)


@torch.no_grad()
def test_a_score_is_the_log_probability_of_its_tokens(model: "Model"):
    """Rescored by the full pass, which knows nothing of beams, caches or compaction."""
    src, mask = sources()
    model.output.weight.mul_(2.0)
    settings = {"special": SPECIAL, "beam_size": 3, "penalty": LengthPenalty(0.6)}
    for row, found in enumerate(search(model, src, mask, limits=torch.full((4,), 7), **settings)):
        tgt_in = torch.tensor([[BOS, *found.tokens]])
        logp = model(src[row : row + 1], mask[row : row + 1], tgt_in)[0].log_softmax(dim=-1)
        total = logp[torch.arange(tgt_in.size(1)), torch.tensor([*found.tokens, EOS])].sum()
        score = total / ((5 + tgt_in.size(1)) / 6) ** 0.6
        assert found.score == pytest.approx(float(score), abs=1e-10)


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_some_updates_learn_to_copy(name: str, tie: str):
    criterion = TranslationLoss(make(name, tie), 0.0)
    optimizer = build_optimizer(criterion.parameters(), OptimConfig(learning_rate=3e-2))
    src, mask = sources(tuple([2, 3, 4] * 8), seed=4)
    tgt_in = torch.cat((torch.full((24, 1), BOS), src[:, :-1]), dim=1).masked_fill(~mask, PAD)
    losses = []
    for _ in range(18):
        loss = criterion(src, mask, tgt_in, src, mask)
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.nll) / loss.tokens)
    assert losses[0] == pytest.approx(2.6, abs=0.9)  # near ln V: nothing is known yet
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]
