"""The contract of compare/protocol.py, for every preset at tiny size."""

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from compare.protocol import EncoderDecoder, keep, select
from seq2seq.config import RecurrentLanguageModelConfig
from tests.kits.contract import (
    EXACT,
    LENGTHS,
    PAD,
    VARIANTS,
    V,
    float64,
    leaves,
    make,
    sharpened,
    sources,
    stepped,
    targets,
    tiny,
)

if TYPE_CHECKING:
    from compare.models.registry import Model

_float64 = pytest.fixture(autouse=True)(float64)
model = pytest.fixture(params=VARIANTS, ids="-".join)(sharpened)


def test_it_fits_the_protocol(model: "Model"):
    assert isinstance(model, EncoderDecoder)
    assert isinstance(model.output, nn.Linear)
    assert model.output.out_features == V
    (src, mask), tgt_in = sources(), targets()
    features = model.features(src, mask, tgt_in)
    assert features.hidden.shape == (4, 6, model.output.in_features)
    assert features.choice_logp is None
    assert features.value is None
    assert torch.equal(model(src, mask, tgt_in), model.output(features.hidden))
    assert all(leaf.size(0) == 4 for leaf in leaves(model.encode(src, mask)))


def test_ties_share_storage():
    for name, tie in VARIANTS:
        model = make(name, tie)
        if "tie" not in tiny(name).settings():
            continue
        embeddings = [
            module.weight
            for module in model.modules()
            if isinstance(module, nn.Embedding) and module.num_embeddings <= V  # of tokens, not of positions
        ]
        assert any(weight is model.output.weight for weight in embeddings), name
        assert (len({id(weight) for weight in embeddings}) == 1) == (tie == "all"), name


def test_stepping_gives_the_logits_of_the_full_pass(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    torch.testing.assert_close(
        stepped(model, src, mask, tgt_in[:, None])[:, 0], model(src, mask, tgt_in), **EXACT
    )


def test_a_position_sees_no_later_token(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    other = tgt_in.clone()
    other[:, 3:] = torch.where(tgt_in[:, 3:] == 5, 6, 5)
    one, two = model(src, mask, tgt_in), model(src, mask, other)
    torch.testing.assert_close(one[:, :3], two[:, :3], **EXACT)
    assert ((one[:, 3] - two[:, 3]).abs().amax(dim=1) > 1e-3).all()


def test_the_source_matters_unless_the_model_reads_none(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    for position in range(LENGTHS[0]):
        other = src.clone()
        other[0, position] = 4 + (src[0, position] - 3) % 6
        one, two = model(src, mask, tgt_in)[0], model(other, mask, tgt_in)[0]
        if getattr(model, "reads_source", True):
            assert not torch.allclose(one, two, atol=1e-6)
        else:
            assert torch.equal(one, two)


def test_padding_changes_nothing(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    expected = model(src, mask, tgt_in)
    wide_src, wide_mask = sources(width=9)
    torch.testing.assert_close(model(wide_src, wide_mask, tgt_in), expected, **EXACT)
    noise = torch.where(wide_mask, wide_src, 7)  # ids at padding do not count
    torch.testing.assert_close(model(noise, wide_mask, tgt_in), expected, **EXACT)
    longer = torch.cat((tgt_in, torch.full((4, 3), PAD)), dim=1)
    torch.testing.assert_close(model(src, mask, longer)[:, :6], expected, **EXACT)


def test_rows_are_independent(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    together = model(src, mask, tgt_in)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], mask[row : row + 1, :length], tgt_in[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **EXACT)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(src[order], mask[order], tgt_in[order]), together[order], **EXACT)


def test_a_beam_is_as_many_separate_hypotheses(model: "Model"):
    src, mask = sources()
    tokens = torch.stack([targets().roll(k, dims=0) for k in range(3)], dim=1)  # (B, 3, T)
    together = stepped(model, src, mask, tokens)
    for k in range(3):
        torch.testing.assert_close(together[:, k], model(src, mask, tokens[:, k]), **EXACT)


def test_a_reordered_state_goes_on_as_its_parent(model: "Model"):
    """Sentences leave and beams change places after two tokens; each continues as if it were alone."""
    src, mask = sources()
    tokens = torch.stack([targets().roll(k, dims=0) for k in range(3)], dim=1)
    rows, parents = torch.tensor([0, 3]), torch.tensor([[2, 0, 0], [1, 2, 1]])
    memory = model.encode(src, mask)
    state = model.init_state(memory, 3, 6)
    for t in range(2):
        _, state = model.step(tokens[:, :, t], state, memory)
    memory, state = keep(memory, rows), select(keep(state, rows), parents)
    past = tokens[rows, :, :2].gather(1, parents.unsqueeze(2).expand(-1, -1, 2))
    for t in range(2, 5):
        logits, state = model.step(tokens[rows, :, t], state, memory)
        past = torch.cat((past, tokens[rows, :, t : t + 1]), dim=2)
        for k in range(3):
            expected = model(src[rows], mask[rows], past[:, k])[:, -1]
            torch.testing.assert_close(logits[:, k], expected, **EXACT)


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_the_seed_decides_the_weights(name: str, tie: str):
    one, two, other = (make(name, tie, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
    assert all(tensor.isfinite().all() for tensor in one.values())


def test_dropout_acts_in_training_only(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    assert torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))
    model.train()
    assert not torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))


def test_attention_rows_are_weights_over_what_may_be_seen(model: "Model"):
    """No attention sees padding or the future; the tests of each package check the values."""
    (src, mask), tgt_in = sources(width=7), targets()
    weights = model.attention(src, mask, tgt_in)
    has_none = isinstance(model.config, RecurrentLanguageModelConfig)
    assert bool(weights) == (not has_none and getattr(model.config, "attention", "") is not None)
    for name, matrix in weights.items():
        kind = name.split(".")[0]
        rows, columns = (7, 7) if kind == "encoder" else (6, 6) if kind == "decoder" else (6, 7)
        assert (matrix.size(0), *matrix.shape[2:]) == (4, rows, columns)
        assert (matrix >= 0).all()
        assert (matrix.sum(-1) < 1 + 1e-12).all()
        assert (matrix.sum(-1) > 0).any()
        if kind == "decoder":
            assert (matrix.triu(1) == 0).all()
        else:
            real = mask[:, None, :, None] if kind == "encoder" else torch.tensor(True)
            assert (matrix[(~mask[:, None, None] & real).expand_as(matrix)] == 0).all()
