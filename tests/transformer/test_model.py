"""Transformers as wholes: against ``transformer.formulas`` and torch's layers; a step is a position."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compare.protocol import keep, select
from tests.kits.contract import seeded_float64
from tests.kits.transformer import (
    EXACT,
    HEADS,
    LENGTHS,
    NORMS,
    SRC_V,
    TGT_V,
    VARIANTS,
    B,
    D,
    S,
    T,
    batch,
    far,
    make,
    make_language_model,
    make_only,
    small,
    small_only,
)
from tests.kits.transformer_twin import (
    decoder_only_twin,
    decoder_twin,
    encoder_twin,
    language_model_twin,
    transformer_twin,
)
from transformer import Decoder, DecoderOnly, Encoder, LanguageModel, Parts, Transformer, plain_attention
from transformer.config import LayerConfig
from transformer.layers import DecoderLayer, EncoderLayer
from transformer.model import initialise
from transformer.multihead import KeyValueCache

_float64 = pytest.fixture(autouse=True)(seeded_float64)
KINDS = pytest.mark.parametrize("make", [make, make_only])
Make = Callable[..., Any]


def twin_of(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits of a batch, one sentence without padding after the other."""
    if isinstance(model, LanguageModel):
        return torch.stack([language_model_twin(model, row) for row in tgt])
    twin = decoder_only_twin if isinstance(model, DecoderOnly) else transformer_twin
    return torch.stack([twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])


@pytest.mark.parametrize("make", [make, make_only, make_language_model])
@VARIANTS
def test_a_model_is_its_formulas_and_so_are_its_gradients(make: Make, changes: dict[str, Any]):
    """A decoder alone counts target positions on from the real end of the source."""
    model, (src, mask, tgt) = make(**changes), batch()
    logits = model(tgt) if isinstance(model, LanguageModel) else model(src, mask, tgt)
    twin = twin_of(model, src, tgt)
    torch.testing.assert_close(logits, twin, rtol=1e-12, atol=1e-11)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, twin))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)
        assert one.abs().sum() > 0, name


def test_without_norm_there_is_none_and_the_residual_path_remains():
    model = Transformer(small(norm="none"), SRC_V, TGT_V).eval()
    assert not any(isinstance(module, nn.LayerNorm | nn.RMSNorm) for module in model.modules())
    src, mask, tgt = batch()
    torch.testing.assert_close(model(src, mask, tgt), twin_of(model, src, tgt), rtol=1e-10, atol=1e-10)


def test_attention_gives_the_weights_of_each_layer_under_its_name():
    """A twin: the softmax of the queries and keys that the fused path was seen to project."""
    model, (src, mask, tgt) = make(head_size=5), batch()
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

    assert set(weights) == {"encoder.0", "encoder.1"} | {
        f"{k}.{n}" for k in ("decoder", "cross") for n in range(3)
    }
    past = torch.ones(T, T, dtype=torch.bool).tril()
    for name, found in weights.items():
        queries = inputs[name][..., :20]
        keys = inputs[name.replace("cross", "memory")]
        keys = keys[..., :20] if name.startswith("cross") else keys[..., 20:40]
        allowed = past if name.startswith("decoder") else mask.unsqueeze(1)
        for head in range(HEADS):
            part = slice(5 * head, 5 * head + 5)
            scores = torch.einsum("bqe,bse->bqs", queries[..., part], keys[..., part]) / 5**0.5
            expected = scores.masked_fill(~allowed, -math.inf).softmax(-1)
            torch.testing.assert_close(found[:, head], expected, **EXACT)


def test_an_encoder_alone_reads_from_both_sides():
    encoder, (src, mask, _) = Encoder(small(), nn.Embedding(SRC_V, D)), batch()
    initialise(encoder)
    states, same_mask, summary = far(encoder)(src, mask)
    assert torch.equal(same_mask, mask)
    for row, length in enumerate(LENGTHS):
        allowed = torch.ones(length, length, dtype=torch.bool)
        twin = encoder_twin(encoder, src[row, :length], small(), allowed)
        torch.testing.assert_close(states[row, :length], twin, **EXACT)
        torch.testing.assert_close(summary[row], twin.mean(0), **EXACT)


@VARIANTS
def test_a_decoder_reads_states_of_any_width(changes):
    config, (_, mask, tgt) = small(**changes), batch()
    decoder = Decoder(config, nn.Embedding(TGT_V, D), memory_size=7)
    initialise(decoder)
    states = torch.randn(B, S, 7)
    memory = far(decoder).remember(states, mask)
    hidden, state = decoder(tgt, memory), decoder.init_state(memory, 1, T)
    for row, length in enumerate(LENGTHS):
        twin = decoder_twin(decoder, states[row, :length], tgt[row], config)
        torch.testing.assert_close(hidden[row], twin, **EXACT)
    for t in range(T):
        stepped, state = decoder.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(stepped[:, 0], hidden[:, t], **EXACT)


# --- torch's layers


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    merged = [ours.project_in] if hasattr(ours, "project_in") else [ours.project_query, ours.project_memory]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in merged]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in merged]))
    theirs.out_proj.load_state_dict(ours.project_out.state_dict())


@torch.no_grad()
def torch_layer(ours: EncoderLayer | DecoderLayer, config: LayerConfig) -> nn.Module:
    """torch's layer with the weights of our layer."""
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


def embed(model: nn.Module, embedding: nn.Embedding, ids: Tensor, starts: Tensor) -> Tensor:
    """Embed ids (B, T), each row from its own start (B,)."""
    return model.place(embedding(ids), starts.unsqueeze(1) + torch.arange(ids.size(1)))


FUTURE = torch.ones(T, T, dtype=torch.bool).triu(1)
FIRST = torch.zeros(B, dtype=torch.long)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@NORMS
def test_the_whole_model_is_a_stack_of_torchs_layers(norm, activation):
    model, (src, mask, tgt) = make(norm=norm, activation=activation), batch()
    final = (model.encoder.norm, model.decoder.norm)
    assert all(isinstance(module, nn.LayerNorm if norm == "pre" else nn.Identity) for module in final)
    states = embed(model.encoder, model.encoder.table, src, FIRST)
    for layer in model.encoder.layers:
        states = torch_layer(layer, model.config)(states, src_key_padding_mask=~mask)
    states = final[0](states)
    hidden = embed(model.decoder, model.decoder.table, tgt, FIRST)
    for layer in model.decoder.layers:
        theirs = torch_layer(layer, model.config)
        hidden = theirs(hidden, states, tgt_mask=FUTURE, memory_key_padding_mask=~mask)
    logits = final[1](hidden) @ model.output.weight.T
    torch.testing.assert_close(model(src, mask, tgt), logits, rtol=1e-10, atol=1e-10)


# --- decoding


@KINDS
@VARIANTS
def test_stepping_gives_the_logits_of_the_full_pass(make: Make, changes: dict[str, object]):
    model, (src, mask, tgt) = make(**changes), batch()
    full = model(src, mask, tgt)
    memory = model.encode(src, mask)
    state = model.init_state(memory, beam=1, capacity=T)
    for t in range(T):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(logits[:, 0], full[:, t], **EXACT)
    with pytest.raises(ValueError, match="holds 5 tokens at most"):
        model.step(tgt[:, :1], state, memory)


@KINDS
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_hypotheses_reordered_at_random_and_sentences_dropped_go_on_as_if_alone(make: Make, positions: str):
    """Each hypothesis carries its own history through 9 steps; a full pass over it must agree at each."""
    beam, steps = 4, 9
    model, (src, mask, _) = make(head_size=3, positions=positions), batch()
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


@VARIANTS
def test_reordered_steps_give_the_logits_of_the_full_pass(changes):
    beam, model = 3, make_language_model(**changes)
    state, history = model.init_state(B, beam, 6), torch.empty(B, beam, 0, dtype=torch.long)
    for step in range(6):
        tokens = torch.randint(TGT_V, (len(history), beam))
        history = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits.flatten(0, 1), model(history.flatten(0, 1))[:, -1], **EXACT)
        parents = torch.randint(beam, (len(history), beam))
        state = select(state, parents)
        history = history.gather(1, parents.unsqueeze(2).expand_as(history))
        if step == 3:
            left = torch.tensor([0, 2])
            state, history = keep(state, left), history[left]


def test_a_cache_reorders_within_a_sentence():
    cache = KeyValueCache(torch.empty(0), (B, 2, D), capacity=T)
    first, second = torch.randn(2, B, 2, D)
    cache.append(first, -first)
    cache.select(torch.tensor([[1, 1], [0, 0], [1, 0]]))
    keys, values = cache.append(second, -second)
    reordered = torch.stack([first[0, [1, 1]], first[1, [0, 0]], first[2, [1, 0]]])
    assert torch.equal(keys, torch.stack([reordered, second]))
    assert torch.equal(values, -keys)


@pytest.mark.parametrize(("key_size", "value_size"), [(D, D), (D, 3), (3, D)])
def test_a_cache_gives_back_keys_and_values_of_any_width(key_size: int, value_size: int) -> None:
    given = torch.randn(T, B, 2, key_size), torch.randn(T, B, 2, value_size)
    cache = KeyValueCache(torch.empty(0), (B, 2, D), capacity=T)
    for keys, values in zip(*given, strict=True):
        found = cache.append(keys, values)
    assert all(map(torch.equal, found, given))
    assert cache.length == T


@KINDS
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_bf16_autocast_trains_and_steps(make: Make, device: str):
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


# --- a decoder alone


def test_attention_is_one_distribution_over_the_source_and_the_past():
    model, (src, mask, tgt) = make_only(), batch()
    weights = model.attention(src, mask, tgt)
    assert set(weights) == {f"{kind}.{n}" for kind in ("cross", "decoder") for n in range(3)}
    for n in range(3):
        source, target = weights[f"cross.{n}"], weights[f"decoder.{n}"]
        assert (source.shape, target.shape) == ((B, HEADS, T, S), (B, HEADS, T, T))
        torch.testing.assert_close(source.sum(-1) + target.sum(-1), torch.ones(B, HEADS, T), **EXACT)
        assert torch.equal(source > 0, mask[:, None, None, :].expand_as(source))
        assert torch.equal(target > 0, torch.ones(T, T).tril().bool().expand_as(target))


def test_an_attention_of_a_study_cannot_be_stepped_here():
    parts = Parts(attend=lambda *call: plain_attention(*call)[0])
    with pytest.raises(ValueError, match="attend cannot be replaced in DecoderOnly: a step attends"):
        DecoderOnly(small_only(), SRC_V, TGT_V, parts)


# --- weights


def test_tied_matrices_are_one_parameter():
    models = {tie: make(tie=tie) for tie in ("none", "output", "all")}
    counts = {tie: sum(p.numel() for p in model.parameters()) for tie, model in models.items()}
    assert counts["none"] - counts["output"] == TGT_V * D
    assert counts["output"] - counts["all"] == SRC_V * D
    for tie, model in models.items():
        source, target = model.encoder.table.weight, model.decoder.table.weight
        assert (model.output.weight is target) == (tie != "none")
        assert (source is target) == (tie == "all")
    for build in (
        lambda: Transformer(small(tie="all"), 11, 13),
        lambda: DecoderOnly(small_only(tie="all"), 11, 13),
    ):
        with pytest.raises(ValueError, match="11 source and 13 target"):
            build()


@pytest.mark.parametrize("tie", ["none", "all"])
def test_fresh_embeddings_and_learned_positions_have_unit_size_once_scaled(tie):
    model = Transformer(small(d_model=64, tie=tie, positions="learned"), 3000, 3000)
    for half in (model.encoder, model.decoder):
        for embedding in (half.table, half.place.places):
            assert embedding.weight.std().item() * 8 == pytest.approx(1, abs=0.02)
    assert model.output.weight.std().item() * 8 == pytest.approx(1, abs=0.02)
