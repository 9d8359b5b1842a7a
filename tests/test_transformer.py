"""The Transformer: against torch's layers, the papers' formulas, and itself run another way."""

import math

import pytest
import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder, keep, select
from transformer import Transformer, TransformerConfig
from transformer.attention import fused_attention, plain_attention
from transformer.cache import KeyValueCache
from transformer.layers import DecoderLayer, EncoderLayer
from transformer.positions import sinusoids

D, HEADS, SRC_V, TGT_V = 16, 4, 11, 13
B, S, T = 3, 6, 5
EXACT = {"rtol": 0.0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def _float64():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def small(**changes) -> TransformerConfig:
    sizes = {"d_model": D, "num_heads": HEADS, "encoder_layers": 2, "decoder_layers": 3, "ffn_size": 32}
    return TransformerConfig(**{**sizes, "dropout": 0.0, **changes})


def make(**changes) -> Transformer:
    """A model whose every weight is far from its start: biases and norms count, attention is sharp."""
    joint = changes.get("tie") == "all"
    model = Transformer(small(**changes), TGT_V if joint else SRC_V, TGT_V).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    src_mask = torch.arange(S) < torch.tensor([S, 4, 1]).unsqueeze(1)
    return torch.randint(SRC_V, (B, S)), src_mask, torch.randint(TGT_V, (B, T))


NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


# --- positions


def test_sinusoids_follow_the_formula():
    table = sinusoids(300, D, start=4700, like=torch.empty(0))
    for n, position in enumerate(range(4700, 5000)):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            assert table[n, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-11)
            assert table[n, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinusoids_of_low_precision_are_the_exact_ones_rounded(dtype):
    exact = sinusoids(3, D, start=100_001, like=torch.empty(0))
    rounded = sinusoids(3, D, start=100_001, like=torch.empty(0, dtype=dtype))
    assert rounded.dtype == dtype
    assert torch.equal(rounded, exact.to(dtype))


def test_moving_on_by_k_positions_is_a_rotation_that_depends_on_k_alone():
    k = 7
    sine, cosine = (sinusoids(50 + k, D, like=torch.empty(0))[:, i::2] for i in (0, 1))
    turn = k * 10000.0 ** (-torch.arange(0, D, 2) / D)
    moved = (
        sine[:50] * turn.cos() + cosine[:50] * turn.sin(),
        cosine[:50] * turn.cos() - sine[:50] * turn.sin(),
    )
    torch.testing.assert_close((sine[k:], cosine[k:]), moved, **EXACT)


def test_embeddings_are_scaled_and_every_row_starts_at_position_0():
    model, (src, _, _) = make(), batch()
    expected = model.encoder.embed.table.weight[src] * 4 + sinusoids(S, D, like=torch.empty(0))
    torch.testing.assert_close(model.encoder.embed(src, S), expected, **EXACT)


# --- attention and layers against torch


@pytest.mark.parametrize("kind", ["free", "padded", "causal"])
def test_plain_attention_is_the_fused_one_and_its_weights_are_weights(kind):
    queries, keys, values = (torch.randn(B, HEADS, S, 4) for _ in range(3))
    mask = batch()[1][:, None, None, :] if kind == "padded" else None
    contexts, weights = plain_attention(queries, keys, values, mask, kind == "causal", 0.0)
    fused = fused_attention(queries, keys, values, mask, kind == "causal", 0.0)
    torch.testing.assert_close(contexts, fused, **EXACT)
    torch.testing.assert_close(contexts, weights @ values, **EXACT)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, HEADS, S), **EXACT)
    allowed = torch.ones(S, S, dtype=torch.bool) if mask is None else mask
    allowed = allowed.tril() if kind == "causal" else allowed
    assert torch.equal(weights > 0, allowed.expand(B, HEADS, S, S))


def test_plain_attention_drops_weights_and_makes_up_for_it():
    zeros, one_hot = torch.zeros(40, HEADS, S, S), torch.eye(S).expand(40, HEADS, S, S)
    kept, weights = plain_attention(zeros, zeros, one_hot, None, False, 0.4)  # one-hot values: the weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / S))
    torch.testing.assert_close(kept, torch.where(kept == 0, 0.0, 1 / S / 0.6))
    assert (kept == 0).double().mean().item() == pytest.approx(0.4, abs=0.03)


def test_bf16_attention_on_a_cpu_stays_within_its_rounding():
    queries, keys, values = (torch.randn(B, HEADS, S, 4) for _ in range(3))
    mask = batch()[1][:, None, None, :]
    exact = fused_attention(queries, keys, values, mask, False, 0.0)
    rough = fused_attention(queries.bfloat16(), keys.bfloat16(), values.bfloat16(), mask, False, 0.0)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=0.05)


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    merged = [ours.project_in] if hasattr(ours, "project_in") else [ours.project_query, ours.project_memory]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in merged]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in merged]))
    theirs.out_proj.load_state_dict(ours.project_out.state_dict())


@torch.no_grad()
def torch_layer(ours: EncoderLayer | DecoderLayer, config: TransformerConfig) -> nn.Module:
    """Torch's own layer with the weights of ours."""
    kind = nn.TransformerDecoderLayer if isinstance(ours, DecoderLayer) else nn.TransformerEncoderLayer
    theirs = kind(
        D, HEADS, config.ffn_size, 0.0, config.activation, batch_first=True, norm_first=config.norm == "pre"
    )
    copy_attention(ours.attention, theirs.self_attn)
    residuals = [ours.around_attention, ours.around_feed_forward]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross, theirs.multihead_attn)
        residuals.insert(1, ours.around_cross)
    for n, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{n}").load_state_dict(residual.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.widen.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())
    return theirs


@NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_is_torchs(norm, activation):
    model = make(norm=norm, activation=activation)
    layer, mask = model.encoder.layers[0], batch()[1]
    theirs = torch_layer(layer, model.config)
    x, x_theirs = (
        torch.ones(B, S, D).cumsum(1).sin().mul(torch.arange(D)).requires_grad_() for _ in range(2)
    )
    ours_out, their_out = (
        layer(x, mask[:, None, None, :])[mask],
        theirs(x_theirs, src_key_padding_mask=~mask)[mask],
    )
    torch.testing.assert_close(ours_out, their_out, rtol=0, atol=1e-10)
    (ours_out**2).sum().backward()
    (their_out**2).sum().backward()
    torch.testing.assert_close(x.grad, x_theirs.grad, rtol=1e-10, atol=1e-10)


@NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_is_torchs(norm, activation):
    model = make(norm=norm, activation=activation)
    layer, mask = model.decoder.layers[0], batch()[1]
    theirs = torch_layer(layer, model.config)
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = theirs(x, states, tgt_mask=future, memory_key_padding_mask=~mask)
    output = layer(x, layer.cross.remember(states), mask[:, None, None, :])
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)


@NORMS
def test_the_whole_model_is_a_stack_of_torchs_layers(norm):
    model, (src, mask, tgt) = make(norm=norm), batch()
    final = (model.encoder.norm, model.decoder.norm)
    assert all(isinstance(module, nn.LayerNorm if norm == "pre" else nn.Identity) for module in final)
    states = model.encoder.embed(src, S)
    for layer in model.encoder.layers:
        states = torch_layer(layer, model.config)(states, src_key_padding_mask=~mask)
    states = final[0](states)
    hidden = model.decoder.embed(tgt, T)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    for layer in model.decoder.layers:
        theirs = torch_layer(layer, model.config)
        hidden = theirs(hidden, states, tgt_mask=future, memory_key_padding_mask=~mask)
    logits = final[1](hidden) @ model.output.weight.T
    torch.testing.assert_close(model(src, mask, tgt), logits, rtol=0, atol=1e-10)


# --- the weights


def test_attention_gives_the_weights_of_each_layer_under_its_name():
    """A twin: the softmax of the queries and keys that the fused path was seen to project."""
    model, (src, mask, tgt) = make(), batch()
    seen: dict[str, Tensor] = {}

    def watch(module: nn.Module, name: str) -> None:
        module.register_forward_hook(lambda *call: seen.__setitem__(name, call[-1]))

    for kind, layers in (("encoder", model.encoder.layers), ("decoder", model.decoder.layers)):
        for n, layer in enumerate(layers):
            watch(layer.attention.project_in, f"{kind}.{n}")
            if kind == "decoder":
                watch(layer.cross.project_query, f"cross.{n}")
                watch(layer.cross.project_memory, f"memory.{n}")
    model(src, mask, tgt)
    inputs = dict(seen)
    weights = model.attention(src, mask, tgt)

    expected_names = {"encoder.0", "encoder.1"} | {f"{k}.{n}" for k in ("decoder", "cross") for n in range(3)}
    assert set(weights) == expected_names
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    for name, found in weights.items():
        queries = inputs[name][..., :D]
        keys = inputs[name.replace("cross", "memory")][..., : 2 * D]
        keys = keys[..., :D] if name.startswith("cross") else keys[..., D:]
        forbidden = future if name.startswith("decoder") else ~mask.unsqueeze(1)
        for head in range(HEADS):
            part = slice(4 * head, 4 * head + 4)
            scores = torch.einsum("bqe,bse->bqs", queries[..., part], keys[..., part]) / 2
            expected = scores.masked_fill(forbidden, -math.inf).softmax(-1)
            torch.testing.assert_close(found[:, head], expected, **EXACT)


def test_the_encoders_summary_is_the_mean_of_the_real_states():
    model, (src, mask, _) = make(), batch()
    states, same_mask, summary = model.encoder(src, mask)
    assert torch.equal(same_mask, mask)
    for row, length in enumerate([S, 4, 1]):
        torch.testing.assert_close(summary[row], states[row, :length].mean(0), **EXACT)


# --- invariances


@NORMS
def test_a_position_never_sees_a_later_token(norm):
    model, (src, mask, tgt) = make(norm=norm), batch()
    before = model(src, mask, tgt)
    for t in range(T):
        changed = tgt.clone()
        changed[:, t] = (tgt[:, t] + 1) % TGT_V
        after = model(src, mask, changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], **EXACT)
        assert ((after[:, t:] - before[:, t:]).abs().amax(-1) > 1e-6).all()


def test_more_padding_and_what_stands_in_it_change_nothing():
    model, (src, mask, tgt) = make(), batch()
    before = model(src, mask, tgt)
    wide = torch.randint(SRC_V, (B, S + 9))
    wide[:, :S] = torch.where(mask, src, wide[:, :S])
    assert not torch.equal(wide[:, :S], src)
    wide_mask = torch.nn.functional.pad(mask, (0, 9))
    longer = torch.cat([tgt, torch.randint(TGT_V, (B, 4))], dim=1)
    torch.testing.assert_close(model(wide, wide_mask, longer)[:, :T], before, **EXACT)
    model(wide, wide_mask, longer).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_sentence_does_not_depend_on_its_neighbours():
    model, (src, mask, tgt) = make(), batch()
    together = model(src, mask, tgt)
    for row, length in enumerate([S, 4, 1]):
        alone = model(src[row : row + 1, :length], mask[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **EXACT)


# --- decoding


@NORMS
@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_stepping_gives_the_logits_of_the_full_pass(norm, tie):
    model, (src, mask, tgt) = make(norm=norm, tie=tie), batch()
    full = model(src, mask, tgt)
    memory = model.encode(src, mask)
    state = model.init_state(memory, beam=1, capacity=T)
    for t in range(T):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(logits[:, 0], full[:, t], **EXACT)
    with pytest.raises(ValueError, match="holds 5 tokens at most"):
        model.step(tgt[:, :1], state, memory)


def test_hypotheses_reordered_at_random_and_sentences_dropped_go_on_as_if_alone():
    """Each hypothesis carries its own history through 9 steps; a full pass over it must agree at each."""
    beam, steps = 4, 9
    model, (src, mask, _) = make(), batch()
    memory = model.encode(src, mask)
    state = model.init_state(memory, beam, steps)
    history = torch.empty(B, beam, 0, dtype=torch.long)
    rows = torch.arange(B)
    for step in range(steps):
        tokens = torch.randint(TGT_V, (len(rows), beam))
        history = torch.cat([history, tokens.unsqueeze(2)], dim=2)
        logits, state = model.step(tokens, state, memory)
        for k in range(beam):
            alone = model(src[rows], mask[rows], history[:, k])
            torch.testing.assert_close(logits[:, k], alone[:, -1], **EXACT)
        parents = torch.randint(beam, (len(rows), beam))
        state = select(state, parents)
        history = torch.stack([history[b, parents[b]] for b in range(len(rows))])
        if step in (3, 6):  # sentence 1, then sentence 0 is finished
            left = torch.arange(1, len(rows)) if step == 6 else torch.tensor([0, 2])
            memory, state = keep(memory, left), keep(state, left)
            rows, history = rows[left], history[left]
    assert rows.tolist() == [2]


def test_memory_has_one_row_a_sentence_and_a_cache_reorders_within_it():
    model, (src, mask, _) = make(), batch()
    memory = model.encode(src, mask)
    assert all(part.shape == (B, HEADS, S, 4) for layer in memory.layers for part in layer)
    cache = KeyValueCache(memory.layers[0].keys, (B, 2, D), capacity=T)
    first, second = torch.randn(2, B, 2, D)
    cache.append(first, -first)
    cache.select(torch.tensor([[1, 1], [0, 0], [1, 0]]))
    keys, values = cache.append(second, -second)
    reordered = torch.stack([first[0, [1, 1]], first[1, [0, 0]], first[2, [1, 0]]])
    assert torch.equal(keys, torch.stack([reordered, second]))
    assert torch.equal(values, -keys)


# --- weights, modes, configuration


def test_the_model_fits_the_protocol():
    assert isinstance(make(), EncoderDecoder)


def test_tied_matrices_are_one_parameter():
    tables = {tie: make(tie=tie) for tie in ("none", "output", "all")}
    counts = {tie: sum(p.numel() for p in model.parameters()) for tie, model in tables.items()}
    assert counts["none"] - counts["output"] == TGT_V * D
    assert counts["output"] - counts["all"] == SRC_V * D
    for tie, model in tables.items():
        source, target = model.encoder.embed.table.weight, model.decoder.embed.table.weight
        assert (model.output.weight is target) == (tie != "none")
        assert (source is target) == (tie == "all")
    with pytest.raises(ValueError, match="11 source and 13 target"):
        Transformer(small(tie="all"), 11, 13)


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_fresh_embeddings_have_unit_size_once_scaled(tie):
    model = Transformer(small(d_model=64, tie=tie), 3000, 3000)
    for weight in (model.encoder.embed.table.weight, model.decoder.embed.table.weight, model.output.weight):
        assert weight.std().item() * 8 == pytest.approx(1, abs=0.01)


def test_dropout_acts_on_embeddings_sublayers_and_weights_in_training_alone():
    src, mask, tgt = batch()
    plain, dropped, thinned = (make(**c) for c in ({}, {"dropout": 0.4}, {"attention_dropout": 0.4}))
    for model in (dropped, thinned):
        model.load_state_dict(plain.state_dict())
        torch.testing.assert_close(model(src, mask, tgt), plain(src, mask, tgt), **EXACT)
        model.train()
        assert not torch.allclose(model(src, mask, tgt), model(src, mask, tgt))
    big = torch.zeros(40, 50, dtype=torch.long)
    share = (dropped.encoder.embed(big, 50) == 0).double().mean().item()
    assert share == pytest.approx(0.4, abs=0.02)
    for residual in (dropped.encoder.layers[0].around_attention, dropped.decoder.layers[0].around_cross):
        kept = residual(torch.zeros(40, 50, D), torch.ones_like)
        assert (kept == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)
        torch.testing.assert_close(kept.max().item(), 1 / 0.6)
    assert torch.equal(thinned.encoder.embed(big, 50), plain.encoder.embed(big, 50))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_bf16_autocast_trains_and_steps(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.set_default_dtype(torch.float32)
    model = make().float().to(device)
    src, mask, tgt = (tensor.to(device) for tensor in batch())
    exact = model(src, mask, tgt)
    with torch.autocast(device, torch.bfloat16):
        hidden = model.train().features(src, mask, tgt).hidden
    hidden.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    with torch.autocast(device, torch.bfloat16), torch.inference_mode():
        memory = model.encode(src, mask)
        state = model.init_state(memory, beam=2, capacity=T)
        for t in range(T):
            logits, state = model.step(tgt[:, t : t + 1].expand(B, 2), state, memory)
            state = select(state, torch.tensor([[1, 0]], device=device).expand(B, 2))
    error = (logits[:, 1].float() - exact[:, -1]).abs().max() / exact.std()
    assert error < 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1, got 0"),
        ({"ffn_size": -3}, "ffn_size must be at least 1, got -3"),
        ({"num_heads": 3}, r"d_model \(16\) must be a multiple of num_heads \(3\)"),
        ({"d_model": 15, "num_heads": 5}, "d_model must be even.*got 15"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout must be .* got -0.1"),
        ({"norm": "none"}, "norm must be one of pre, post, got 'none'"),
        ({"activation": "tanh"}, "activation must be one of relu, gelu, got 'tanh'"),
        ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
    ],
)
def test_an_impossible_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)
