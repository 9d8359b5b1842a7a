"""Parts of a Transformer: positions, norms, dropouts, masks, and replacements of them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.kits.contract import seeded_float64
from tests.kits.transformers import (
    EXACT,
    SRC_V,
    TGT_V,
    D,
    S,
    T,
    batch,
    make,
    make_language_model,
    make_only,
    small,
    stepped,
)
from transformer import Parts, Transformer, plain_attention
from transformer.config import BUCKETS
from transformer.fast import LEVELS, Dropout
from transformer.model import FeedForward, Residual
from transformer.positions import MIN_CACHED, PositionalEmbedding, alibi_slopes, distance_bucket, sinusoids

_float64 = pytest.fixture(autouse=True)(seeded_float64)


# --- positions


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_sinusoids_are_the_exact_ones_rounded(dtype):
    """The cache grows, follows the dtype, can be used in training after search, and is no part of weights."""
    embedding = PositionalEmbedding(small())
    for end in (5, 3, MIN_CACHED + 1, 100_000):
        where = torch.tensor([[0, end - 1, end // 2]])
        embedded = torch.zeros(1, 3, D, dtype=dtype, requires_grad=True)
        with torch.inference_mode():
            embedding(embedded.detach(), where, end)
        encoded = embedding(embedded, where, end)
        torch.testing.assert_close(encoded, sinusoids(where, D).to(dtype))
        encoded.sum().backward()
    assert not embedding.state_dict()
    assert embedding(embedded.double(), where, end).dtype == torch.float64


def test_past_the_learned_positions_is_an_error():
    """512 vectors unless the config says otherwise; the values count, not what ``end`` allows for."""
    where = torch.tensor([510, 511, 512, 10**6])
    embedding, zeros = PositionalEmbedding(small(positions="learned")), torch.zeros(1, 4, D)
    with pytest.raises(ValueError, match="longer than the 512 learned positions: raise max_positions"):
        embedding(zeros, where, 10**6 + 1)
    assert embedding(zeros[:, :2], where[:2], 600).shape == (1, 2, D)
    for positions in ("learned", "concat-learned"):
        model, (src, mask, tgt) = make(positions=positions, max_positions=T), batch()
        with pytest.raises(ValueError, match=f"longer than the {T} learned positions"):
            model(src, mask, tgt)  # S > T
        model(src[:, :T], mask[:, :T], tgt)


def test_slopes_of_alibi_are_those_of_the_paper():
    """8 heads: 1/2, 1/4, ..., 1/256 (section 3); 12 heads: the 8, then every second one of 16 heads."""
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(12) == alibi_slopes(8) + [2.0 ** (-0.5 * h) for h in (1, 3, 5, 7)]


@pytest.mark.parametrize("limit", [17, 20, 128])
@pytest.mark.parametrize("causal", [True, False])
def test_ranges_of_t5_grow_with_the_distance_and_end_at_the_limit(limit: int, causal: bool):
    count, steps = BUCKETS if causal else BUCKETS // 2, torch.arange(200)
    buckets = distance_bucket(-steps, limit, causal)
    assert buckets[: count // 2].tolist() == list(range(count // 2))
    assert (buckets.diff() >= 0).all()
    assert set(buckets[limit:].tolist()) == {count - 1}
    after = distance_bucket(steps[1:], limit, causal)
    assert torch.equal(after, torch.zeros(199, dtype=torch.long) if causal else count + buckets[1:])


def test_biases_of_t5_begin_small():
    """As those of its code: normal, of standard deviation D^-0.5."""
    model = Transformer(small(positions="t5", d_model=64, head_size=16), SRC_V, TGT_V)
    assert model.encoder.order.bias.weight.std().item() * 8 == pytest.approx(1, abs=0.25)


# --- norms and dropouts


def test_word_and_activation_dropout_act_where_they_say():
    """Word dropout drops whole embeddings, and their positions stay."""
    ones, where = torch.ones(40, 50, D), torch.arange(50)
    embedding, positions = PositionalEmbedding(small(word_dropout=0.3)).train(), sinusoids(where, D)
    output = embedding(ones, where, 50)
    is_dropped = (output == positions).all(-1)
    torch.testing.assert_close(output[~is_dropped], (4 / 0.7 + positions).expand_as(output)[~is_dropped])
    assert is_dropped.double().mean().item() == pytest.approx(0.3, abs=0.04)
    torch.testing.assert_close(embedding.eval()(ones, where, 50), (4 + positions).expand_as(ones))
    for activation in ("relu", "gelu", "swiglu"):
        layer = FeedForward(small(activation=activation, activation_dropout=0.4)).train()
        seen: list[Tensor] = []
        layer.narrow.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        nn.init.constant_(layer.widen.weight, 0.1)
        layer(ones)
        assert (seen[0] == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)


def test_dropout_acts_on_embeddings_sublayers_and_weights_in_training_alone():
    (src, mask, tgt), plain = batch(), make()
    for rate in ("dropout", "attention_dropout"):
        model = make(**{rate: 0.4})
        model.load_state_dict(plain.state_dict())
        torch.testing.assert_close(model(src, mask, tgt), plain(src, mask, tgt), **EXACT)
        model.train()
        assert not torch.allclose(model(src, mask, tgt), model(src, mask, tgt))
    ones = torch.ones(40, 50, D)
    embedding = PositionalEmbedding(small(dropout=0.4)).train()
    assert (embedding(ones, torch.arange(50), 50) == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)
    for norm in ("pre", "post"):
        residual = Residual(small(norm=norm, dropout=0.4)).train()
        residual.norm = nn.Identity()
        assert torch.equal(residual(ones, torch.zeros_like), ones)  # nothing of the residual path is dropped
        output = residual(torch.zeros(40, 50, D), torch.ones_like)
        assert (output == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("probability", [0.1, 0.9])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.01)])
def test_the_share_is_dropped_and_the_mean_kept(probability: float, dtype: torch.dtype, tolerance: float):
    shape = (1_003, 257)  # no multiple of the four that share a number
    out = Dropout(probability)(torch.ones(shape, dtype=dtype))
    assert (out.shape, out.dtype) == (shape, dtype)
    dropped, error = (out == 0).double().mean().item(), (probability * (1 - probability) / out.numel()) ** 0.5
    assert dropped == pytest.approx(probability, abs=5 * error + 1 / LEVELS)
    scaled = out[out != 0].double() * (1 - probability)
    torch.testing.assert_close(scaled, torch.ones_like(scaled), rtol=tolerance, atol=0)


def test_entries_fall_out_one_by_one_wherever_they_stand():
    """No two of the four that share a number are tied, nor rows, nor columns, nor calls."""
    torch.manual_seed(2)
    is_kept = torch.stack([(Dropout(0.5)(torch.ones(400, 64)) != 0).double() for _ in range(50)]).flatten(
        0, 1
    )
    correlation = torch.corrcoef(is_kept.t()) - torch.eye(64)
    assert correlation.abs().max() < 5 / len(is_kept) ** 0.5
    assert (is_kept.mean(0) - 0.5).abs().max() < 2.5 / len(is_kept) ** 0.5


def test_the_generator_decides_which_entries_fall_out():
    torch.manual_seed(3)
    x, state = torch.randn(33, 5), torch.get_rng_state()
    out, other = Dropout(0.3)(x), Dropout(0.3)(x)
    assert not torch.equal(out, other)
    torch.set_rng_state(state)
    assert torch.equal(Dropout(0.3)(x), out)
    assert Dropout(0.5).eval()(x) is Dropout(0.0)(x) is x


# --- replaced parts


def unscaled(queries: Tensor, *rest: object) -> Tensor:
    return plain_attention(queries * math.sqrt(queries.size(-1)), *rest)[0]


def test_an_attention_of_a_study_takes_its_place_in_training_and_in_decoding():
    src, mask, tgt = batch()
    model, standard, same = make(Parts(attend=unscaled)), make(), make(attention_kind="unscaled")
    for other in (standard, same):
        other.load_state_dict(model.state_dict())
    full = model(src, mask, tgt)
    assert not torch.allclose(full, standard(src, mask, tgt), atol=1e-3)
    torch.testing.assert_close(full, same(src, mask, tgt), **EXACT)
    torch.testing.assert_close(stepped(model, src, mask, tgt), full, **EXACT)


def test_a_replaced_attention_and_a_kind_of_attention_exclude_each_other():
    def mine(*inputs: object) -> Tensor:
        return plain_attention(*inputs)[0]

    with pytest.raises(ValueError, match='attention_kind "hard" has no effect with Parts'):
        make(Parts(attend=mine), attention_kind="hard")
    with pytest.raises(ValueError, match='positions "relative" need the standard attention'):
        make(Parts(attend=mine), positions="relative")


# --- masks


def save(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "mask.npy", array)
    return str(folder / "mask.npy")


def test_a_file_says_who_may_attend_to_whom(tmp_path: Path):
    """Random pairs, larger than the sentences; every position keeps the first, and steps see the same."""
    matrix = np.random.default_rng(0).random((9, 8)) < 0.5
    matrix[:, 0] = True
    path, (src, mask, tgt) = save(tmp_path, matrix.astype(np.int8)), batch()
    table = torch.from_numpy(matrix)
    names = ("encoder_mask", "decoder_mask", "cross_mask")
    model = make(**dict.fromkeys(names, path))
    logits = model(src, mask, tgt)
    torch.testing.assert_close(stepped(model, src, mask, tgt), logits, **EXACT)
    only = make_only(**dict.fromkeys(names, path))
    torch.testing.assert_close(stepped(only, src, mask, tgt), only(src, mask, tgt), **EXACT)
    recorded = [*model.attention(src, mask, tgt).items(), *only.attention(src, mask, tgt).items()]
    recorded += make_language_model(decoder_mask=path).attention(tgt).items()
    for name, weights in recorded:
        past = torch.ones(T, T, dtype=torch.bool).tril()
        real = past if name.startswith("decoder") else mask[:, None, None, :]
        allowed = (table[: weights.size(2), : weights.size(3)] & real).expand_as(weights)
        rows = slice(1) if name.startswith("encoder") else slice(None)  # padding as a query is not restricted
        assert torch.equal(weights[rows] > 0, allowed[rows]), name


def test_a_mask_that_cannot_be_is_refused(tmp_path: Path):
    src, mask, tgt = batch()
    with pytest.raises(ValueError, match="must be a matrix of zeros and ones"):
        make(encoder_mask=save(tmp_path, np.full((9, 9), 0.5)))
    (tmp_path / "no.npy").write_text("no array")
    with pytest.raises(ValueError, match=r"cross_mask: .*no\.npy is not a complete \.npy file"):
        make(cross_mask=str(tmp_path / "no.npy"))
    with pytest.raises(OSError, match=r"absent\.npy"):
        make(cross_mask=str(tmp_path / "absent.npy"))
    small_mask = make(encoder_mask=save(tmp_path, np.ones((S - 1, S))))
    with pytest.raises(ValueError, match=r"mask.npy, .*, is too small for these sentences or translations"):
        small_mask(src, mask, tgt)
    for name in ("encoder_mask", "decoder_mask", "cross_mask"):
        with pytest.raises(ValueError, match="leaves a position nothing to attend to"):
            make(**{name: save(tmp_path, np.triu(np.ones((9, 9)), 1))})(src, mask, tgt)
