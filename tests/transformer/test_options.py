"""Options of the Transformer beyond the published model: what each does, apart from the twins' formulas."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.kits.transformer import (
    EXACT,
    HEADS,
    LENGTHS,
    SRC_V,
    TGT_V,
    B,
    D,
    S,
    T,
    batch,
    float64,
    make,
    make_language_model,
    make_only,
    small,
    small_only,
)
from tests.kits.transformer_twin import transformer_twin
from transformer import DecoderOnly, LanguageModel, Parts, Transformer, fused_attention, plain_attention
from transformer.attention import hard_attention, hard_weights
from transformer.flops import multiply_adds
from transformer.layers import FeedForward
from transformer.mask_patterns import read_npy
from transformer.positions import PositionalEmbedding, alibi_slopes

_float64 = pytest.fixture(autouse=True)(float64)


def stepped(model: nn.Module, src: Tensor, mask: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits (B, T, V) step by step."""
    memory, logits = model.encode(src, mask), []
    state = model.init_state(memory, 1, T)
    for t in range(T):
        step, state = model.step(tgt[:, t : t + 1], state, memory)
        logits.append(step)
    return torch.cat(logits, dim=1)


# --- positions


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi"])
def test_positions_of_attention_are_distances(positions: str):
    """All positions moved on by 7 change nothing, and the order of the tokens counts."""
    model = make(positions=positions, max_distance=3 if positions == "relative" else None)
    x, where = torch.randn(B, S, D), torch.arange(S)
    here = model.encoder.run(x, where, 20, None)
    torch.testing.assert_close(model.encoder.run(x, where + 7, 20, None), here, **EXACT)
    torch.testing.assert_close(model.encoder.run(x, (where + 7).expand(B, S), 20, None), here, **EXACT)
    assert not torch.allclose(model.encoder.run(x, where.flip(0) * 2, 20, None), here)
    assert not any("place" in name for name in model.state_dict())


def test_slopes_of_alibi_are_those_of_the_paper():
    """8 heads: 1/2, 1/4, ..., 1/256 (section 3); 12 heads: the 8, then every second one of 16 heads."""
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(12) == alibi_slopes(8) + [2.0 ** (-0.5 * h) for h in (1, 3, 5, 7)]


def test_the_bias_of_alibi_is_symmetric_in_the_encoder_and_absent_across():
    model = make(positions="alibi")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    weights = model.attention(torch.zeros(1, S, dtype=torch.long), None, torch.zeros(1, T, dtype=torch.long))
    encoder = weights["encoder.0"][0, 0].log()
    slope, far_apart = alibi_slopes(HEADS)[0], (torch.arange(S) - torch.arange(S).unsqueeze(1)).abs()
    torch.testing.assert_close(
        encoder - encoder.diagonal().unsqueeze(1), -slope * far_apart.double(), **EXACT
    )
    torch.testing.assert_close(weights["cross.0"], torch.full((1, HEADS, T, S), 1 / S), **EXACT)


def test_a_concatenated_position_takes_the_place_of_the_last_numbers():
    """By default a quarter of the width; the width of the embedding and its tie do not change."""
    config = small(positions="concat", tie="output")
    place, embedded = PositionalEmbedding(config), torch.randn(B, T, D)
    placed = place(embedded, torch.arange(T))
    assert torch.equal(placed[..., :12], embedded[..., :12] * 4)
    torch.testing.assert_close(placed[..., 12:], placed[:1, :, 12:].expand(B, -1, -1), **EXACT)
    assert Transformer(config, SRC_V, TGT_V).output.weight.shape == (TGT_V, D)


def test_the_network_of_positions_is_counted_as_a_sentence_of_its_own():
    for config, kind in (
        (small(positions="network"), Transformer),
        (small_only(positions="network"), DecoderOnly),
    ):
        model = kind(config, SRC_V, TGT_V)
        src, tgt = torch.zeros(1, S, dtype=torch.long), torch.zeros(1, T, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model(src, None, tgt)
        assert 2 * (multiply_adds(config, S, T) + T * D * TGT_V) == counter.get_total_flops()


# --- norm, feed-forward sublayer, sharing, dropout


def test_without_norm_there_is_none_and_the_residual_path_remains():
    model = Transformer(small(norm="none"), SRC_V, TGT_V).eval()
    assert not any(isinstance(module, nn.LayerNorm | nn.RMSNorm) for module in model.modules())
    src, mask, tgt = batch()
    twin = torch.stack([transformer_twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])
    torch.testing.assert_close(model(src, mask, tgt), twin, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(stepped(model, src, mask, tgt), twin, rtol=1e-10, atol=1e-10)


def test_a_root_mean_square_norm_ignores_the_scale_and_keeps_the_mean():
    norm = make(norm_kind="rms").encoder.norm
    x = torch.randn(3, D) + 5
    torch.testing.assert_close(norm(100 * x), norm(x), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(norm(x + 1), norm(x))


def test_without_biases_the_model_has_none():
    names = [name for name, _ in make(bias=False, activation="swiglu").named_parameters()]
    assert not [name for name in names if name.endswith("bias")]
    assert [name for name, _ in make().named_parameters() if name.endswith("bias")]


def test_word_and_embedding_and_activation_dropout_act_where_they_say():
    ones, where = torch.ones(40, 50, D), torch.arange(50)
    place = PositionalEmbedding(small(positions="none", word_dropout=0.3)).train()
    words = place(ones, where) / 4
    assert (words == words[..., :1]).all()
    assert (words[..., 0] == 0).double().mean().item() == pytest.approx(0.3, abs=0.04)
    assert words.max().item() == pytest.approx(1 / 0.7)
    assert torch.equal(place.eval()(ones, where), ones * 4)
    place = PositionalEmbedding(small(positions="none", dropout=0.0, embedding_dropout=0.2)).train()
    assert (place(ones, where) == 0).double().mean().item() == pytest.approx(0.2, abs=0.02)
    for activation in ("relu", "gelu", "swiglu"):
        layer = FeedForward(small(activation=activation, activation_dropout=0.4)).train()
        seen: list[Tensor] = []
        layer.narrow.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        nn.init.constant_(layer.widen.weight, 0.1)
        layer(ones)
        assert (seen[0] == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)


# --- attention


def test_hard_weights_are_one_hot_and_pass_on_the_gradient_of_softmax():
    scores = torch.randn(5, 7, requires_grad=True)
    weights, direction = hard_weights(scores), torch.randn(5, 7)
    assert torch.equal(weights.detach(), nn.functional.one_hot(scores.argmax(-1), 7).double())
    (hard,) = torch.autograd.grad((weights * direction).sum(), scores)
    (soft,) = torch.autograd.grad((scores.softmax(-1) * direction).sum(), scores)
    assert torch.equal(hard, soft)
    for name, recorded in make(attention_kind="hard").attention(*batch()).items():
        assert set(recorded.unique().tolist()) == {0.0, 1.0}, name


def test_unscaled_scores_are_larger_by_the_root_of_the_size_of_a_head():
    scaled, unscaled, sentences = make(), make(attention_kind="unscaled"), batch()
    unscaled.load_state_dict(scaled.state_dict())
    with torch.no_grad():  # E = 4
        for stack in (scaled.encoder, scaled.decoder):
            for layer in stack.layers:
                layer.attention.project_in.weight[:D] *= 2
                layer.attention.project_in.bias[:D] *= 2
        for layer in scaled.decoder.layers:
            layer.cross.project_query.weight *= 2
            layer.cross.project_query.bias *= 2
    torch.testing.assert_close(unscaled(*sentences), scaled(*sentences), rtol=1e-11, atol=1e-11)


def test_a_replaced_attention_and_a_kind_of_attention_exclude_each_other():
    def mine(*inputs: object) -> Tensor:
        return plain_attention(*inputs)[0]

    with pytest.raises(ValueError, match='attention_kind "hard" has no effect with Parts'):
        make(Parts(attend=mine), attention_kind="hard")
    with pytest.raises(ValueError, match='positions "relative" need the standard attention'):
        make(Parts(attend=mine), positions="relative")


def test_a_bias_acts_on_scores_in_every_implementation():
    """The one-query path over a cache, the plain one, and the hard one, which picks the largest sum."""
    q, keys = torch.randn(B, HEADS, 1, 4), torch.randn(S, B, HEADS, 4).permute(1, 2, 0, 3)
    values, bias = torch.randn(S, B, HEADS, 3).permute(1, 2, 0, 3), torch.randn(HEADS, 1, S)
    bias[..., 2] = float("-inf")
    scores = torch.einsum("bhqe,bhse->bhqs", q, keys) / 2 + bias
    expected = torch.einsum("bhqs,bhse->bhqe", scores.softmax(-1), values)
    for contiguous in (keys, keys.contiguous()):
        found = fused_attention(q, contiguous, values, bias, False, 0.0)
        torch.testing.assert_close(found, expected, **EXACT)
    best = values.gather(2, scores.argmax(-1).unsqueeze(-1).expand(-1, -1, -1, 3))
    torch.testing.assert_close(hard_attention(q, keys, values, bias, False, 0.0), best, **EXACT)


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi"])
def test_positions_of_attention_step_in_bf16(positions: str):
    torch.set_default_dtype(torch.float32)
    src, mask, tgt = batch()
    for model in (make(positions=positions).float(), make_only(positions=positions).float()):
        exact = model(src, mask, tgt)
        with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
            found = stepped(model, src, mask, tgt)
        assert (found.float() - exact).abs().mean() / exact.std() < 0.1
        with torch.inference_mode():
            assert stepped(model.bfloat16(), src, mask, tgt).isfinite().all()


# --- masks


def save(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "mask.npy", array)
    return str(folder / "mask.npy")


@pytest.mark.parametrize("heads", [(), (HEADS,)], ids=["one", "per-head"])
def test_a_file_or_a_function_says_who_may_attend_to_whom(tmp_path: Path, heads: tuple[int, ...]):
    """Random pairs, larger than the sentences; every position keeps the first, and steps see the same."""
    matrix = np.random.default_rng(0).random((*heads, 9, 8)) < 0.5
    matrix[..., 0] = True
    path, (src, mask, tgt) = save(tmp_path, matrix.astype(np.int8)), batch()
    table = torch.from_numpy(matrix)
    function = Parts(
        encoder_mask=lambda q, k: table[..., q, :][..., k],
        decoder_mask=lambda q, k: table[..., q, :][..., k],
        cross_mask=lambda q, k: table[..., q, :][..., k],
    )
    names = ("encoder_mask", "decoder_mask", "cross_mask")
    model = make(**dict.fromkeys(names, path))
    logits = model(src, mask, tgt)
    torch.testing.assert_close(stepped(model, src, mask, tgt), logits, **EXACT)
    torch.manual_seed(3)
    other = make(function)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(src, mask, tgt), logits, **EXACT)
    real = {
        "encoder": mask[:, None, None, :],
        "cross": mask[:, None, None, :],
        "decoder": torch.ones(T, T).tril(),
    }
    for name, weights in model.attention(src, mask, tgt).items():
        kind = name.split(".")[0]
        allowed = table[..., : weights.size(2), : weights.size(3)] & real[kind].bool()
        if kind == "encoder":  # the queries of padding are not restricted
            weights, allowed = weights[0], allowed.expand(B, HEADS, S, S)[0]
        assert torch.equal(weights > 0, allowed.expand_as(weights)), name
    only = make_only(**dict.fromkeys(names, path))
    torch.testing.assert_close(stepped(only, src, mask, tgt), only(src, mask, tgt), **EXACT)
    for name, weights in only.attention(src, mask, tgt).items():
        kind = name.split(".")[0]
        allowed = table[..., : weights.size(2), : weights.size(3)] & real[kind].bool()
        assert torch.equal(weights > 0, allowed.expand_as(weights)), name
    text = make_language_model(decoder_mask=path)
    allowed = table[..., :T, :T] & real["decoder"].bool()
    for weights in text.attention(tgt).values():
        assert torch.equal(weights > 0, allowed.expand_as(weights))


def test_a_window_across_stays_at_the_last_source_token():
    src, mask, tgt = batch()
    weights = make(cross_mask="window:0").attention(src, mask, tgt)["cross.0"]
    for b, length in enumerate(LENGTHS):
        assert weights[b, 0].argmax(-1).tolist() == [min(t, length - 1) for t in range(T)]
        assert torch.equal(weights[b].amax(-1), torch.ones(HEADS, T))


def test_a_mask_that_cannot_be_is_refused(tmp_path: Path):
    src, mask, tgt = batch()
    with pytest.raises(ValueError, match=r"must hold zeros and ones, of shape \(N, M\) or \(H, N, M\)"):
        make(encoder_mask=save(tmp_path, np.full((9, 9), 0.5)))
    with pytest.raises(ValueError, match="is for 3 heads, but num_heads is 4"):
        make(cross_mask=save(tmp_path, np.ones((3, 9, 9))))
    (tmp_path / "no.npy").write_text("no array")
    with pytest.raises(ValueError, match=r"cross_mask: .*no\.npy is not a \.npy file: it does not begin"):
        make(cross_mask=str(tmp_path / "no.npy"))
    with pytest.raises(OSError, match=r"absent\.npy"):
        make(cross_mask=str(tmp_path / "absent.npy"))
    small_mask = make(encoder_mask=save(tmp_path, np.ones((S - 1, S))))
    with pytest.raises(ValueError, match=r"mask.npy is 5 x 6, too small for these sentences"):
        small_mask(src, mask, tgt)
    for name in ("encoder_mask", "decoder_mask", "cross_mask"):
        with pytest.raises(ValueError, match="leaves a position nothing to attend to"):
            make(**{name: save(tmp_path, np.triu(np.ones((9, 9)), 1))})(src, mask, tgt)
    for name in ("encoder_mask", "decoder_mask", "cross_mask"):
        numbers = Parts(**{name: lambda q, k: torch.ones(len(q), len(k), dtype=torch.int8)})
        for model in (make(numbers), DecoderOnly(small_only(), SRC_V, TGT_V, numbers)):
            with pytest.raises(ValueError, match=f"{name} must return a bool mask"):
                model(src, mask, tgt)
    for name in ("encoder_mask", "cross_mask"):
        with pytest.raises(ValueError, match=f"{name} has no effect in a language model"):
            LanguageModel(small_only(**{name: "causal"}), TGT_V)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<i2", "<i8", "<f2", "<f8"])
def test_a_npy_file_is_read_as_numpy_reads_it(tmp_path: Path, dtype: str, order: str):
    array = np.asarray(np.random.default_rng(0).integers(0, 2, (2, 3, 5)), dtype=dtype, order=order)
    found = read_npy(save(tmp_path, array))
    assert np.array_equal(found.numpy(), np.load(tmp_path / "mask.npy"))
    assert found.numpy().dtype == array.dtype


def test_a_npy_file_that_is_damaged_or_holds_no_numbers_is_refused(tmp_path: Path):
    path = Path(save(tmp_path, np.ones((3, 3))))
    whole = path.read_bytes()
    for content, message in (
        (whole[:-1], "is truncated: 71 bytes of 72"),
        (whole[:20], "its header cannot be read"),
        (whole.replace(b"'descr'", b"'dexxr'"), "its header cannot be read"),
        (whole.replace(b"<f8", b">f8"), "holds values of type '>f8', not numbers"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_npy(str(path))
