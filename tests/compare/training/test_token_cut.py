"""Cut tokens have embeddings of zeros, in every model, and nothing else of them is left."""

import pytest
import torch
from torch import Tensor, nn

from compare.models.presets import PRESETS
from compare.training.consistency import cut_embeddings, cut_tokens, may_cut_source, may_cut_target
from tests.kits.contract import EXACT, V, float64, make, sharpen, sources, targets

_float64 = pytest.fixture(autouse=True)(float64)
ZERO = 9
"""The id whose embeddings are set to zero."""
CUT_SRC = torch.tensor([[0, 2], [1, 1], [3, 0]])
CUT_TGT = torch.tensor([[0, 1], [0, 4], [2, 3]])


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Draw a batch without ``ZERO``."""
    (src, mask), tgt = sources(), targets()
    return src.masked_fill(src == ZERO, 8), mask, tgt.masked_fill(tgt == ZERO, 8)


def put(ids: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    return ids.index_put(tuple(positions.t()), values)


def at(ids: Tensor, positions: Tensor) -> Tensor:
    return ids[tuple(positions.t())]


def zero_row(model: nn.Module) -> None:
    """Give ``ZERO`` embeddings of zeros on both sides; the rows of vocabularies, not those of positions."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Embedding) and part.num_embeddings in (V, V - 2):
                part.weight[ZERO] = 0.0


@pytest.mark.parametrize("name", PRESETS)
def test_a_cut_token_is_one_with_an_embedding_of_zeros(name: str):
    model = make(name).eval()
    sharpen(model)
    zero_row(model)
    src, mask, tgt = inputs()
    zero = torch.tensor(ZERO)
    expected = model.features(put(src, CUT_SRC, zero), mask, put(tgt, CUT_TGT, zero)).hidden
    with cut_embeddings(model):
        cut = model.features(put(src, CUT_SRC, ~at(src, CUT_SRC)), mask, put(tgt, CUT_TGT, ~at(tgt, CUT_TGT)))
    torch.testing.assert_close(cut.hidden, expected, **EXACT)
    assert not torch.equal(model.features(src, mask, tgt).hidden, expected)


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "decoder-only", "transformer-lm"])
def test_no_gradient_reaches_the_embedding_of_a_cut_token(name: str):
    model = make(name)
    src, mask, tgt = inputs()
    tgt = put(tgt, CUT_TGT, torch.tensor(ZERO))
    with cut_embeddings(model):
        hidden = model.features(src, mask, put(tgt, CUT_TGT, ~at(tgt, CUT_TGT))).hidden
    hidden.square().sum().backward()
    used = [part.weight for part in model.modules() if isinstance(part, nn.Embedding)]
    gradients = [weight.grad for weight in used if weight.size(0) == V and weight.grad is not None]
    assert gradients
    for gradient in gradients:
        assert not gradient[ZERO].any()
        assert gradient[tgt[0, 3]].any()


def test_embeddings_are_as_before_afterwards():
    model = make("transformer").eval()
    src, mask, tgt = inputs()
    before = model.features(src, mask, tgt).hidden
    with cut_embeddings(model):
        assert torch.equal(model.features(src, mask, tgt).hidden, before)  # no token is cut
    with pytest.raises(KeyError), cut_embeddings(model):
        raise KeyError
    assert not any("forward" in vars(part) for part in model.modules())
    assert torch.equal(model.features(src, mask, tgt).hidden, before)


def test_ends_of_sources_and_begins_of_targets_are_never_cut():
    src, mask, tgt = inputs()
    certain = cut_tokens(src, may_cut_source(mask), 1.0)
    lengths = mask.sum(dim=1, keepdim=True)
    assert torch.equal(certain < 0, torch.arange(src.size(1)) < lengths - 1)
    assert torch.equal(torch.where(certain < 0, ~certain, certain), src)
    assert torch.equal(
        cut_tokens(tgt, may_cut_target(tgt), 1.0) < 0, torch.arange(tgt.size(1)).expand_as(tgt) > 0
    )


def test_as_many_tokens_are_cut_as_was_asked_for():
    ids = torch.arange(40_000).view(200, 200)
    torch.manual_seed(3)
    cut = cut_tokens(ids, torch.ones_like(ids, dtype=torch.bool), 0.05) < 0
    assert pytest.approx(float(cut.double().mean()), abs=4 * (0.05 * 0.95 / 40_000) ** 0.5) == 0.05
    assert len({tuple(row.tolist()) for row in cut}) == 200
