"""The Transformer and its halves: against their twins; and that one memory serves many decodes."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.kits.transformer import (
    EXACT,
    HEADS,
    LENGTHS,
    SRC_V,
    TGT_V,
    VARIANTS,
    B,
    D,
    S,
    T,
    batch,
    far,
    float64,
    make,
    small,
)
from tests.kits.transformer_twin import decoder_twin, encoder_twin, transformer_twin
from transformer import Decoder, Encoder
from transformer.model import initialise

_float64 = pytest.fixture(autouse=True)(float64)


@VARIANTS
def test_it_is_its_twin_and_so_are_its_gradients(changes):
    model, (src, mask, tgt) = make(**changes), batch()
    logits = model(src, mask, tgt)
    twin = torch.stack([transformer_twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])
    torch.testing.assert_close(logits, twin, rtol=1e-10, atol=1e-10)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, twin))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)
        assert one.abs().sum() > 0, name


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


# --- the halves alone


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


@pytest.mark.parametrize("shape", [(S, S), (B, S, S), (B, HEADS, S, S)])
def test_an_encoder_keeps_to_a_general_mask(shape):
    """One mask for all, one per sentence, or one per head (here equal for all heads, as in the twin)."""
    encoder, (src, mask, _) = make().encoder, batch()
    allowed = (torch.rand(shape) < 0.5) | torch.eye(S, dtype=torch.bool)
    if len(shape) == 4:
        allowed[:] = allowed[:, :1]
    own = (allowed.unsqueeze(1) if len(shape) == 3 else allowed).expand(B, HEADS, S, S)
    states, _, _ = encoder(src, mask, allowed=allowed)
    for row, length in enumerate(LENGTHS):
        twin = encoder_twin(encoder, src[row, :length], small(), own[row, 0, :length, :length])
        torch.testing.assert_close(states[row, :length], twin, **EXACT)
    weights = encoder.attention(src, mask, allowed=allowed)["encoder.1"]
    for row, length in enumerate(LENGTHS):
        assert torch.equal(weights[row, :, :length, :length] > 0, own[row, :, :length, :length])
        assert (weights[row, :, :, length:] == 0).all()


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


def test_one_encoder_pass_serves_any_number_of_decodes():
    """Into one language or another, greedily or by beam: the memory is all that a decoder needs."""
    model, (src, mask, tgt) = make(), batch()
    calls = {"encoder": 0, "memory": 0}

    def count(name: str) -> None:
        calls[name] += 1

    model.encoder.register_forward_hook(lambda *_: count("encoder"))
    for layer in model.decoder.layers:
        layer.cross.project_memory.register_forward_hook(lambda *_: count("memory"))
    memory = model.encode(src, mask)
    for beam in (1, 3):
        state = model.init_state(memory, beam, T)
        for t in range(T):
            logits, state = model.step(tgt[:, t : t + 1].expand(B, beam), state, memory)
        torch.testing.assert_close(model.output(model.decoder(tgt, memory))[:, -1], logits[:, 0], **EXACT)
    assert calls == {"encoder": 1, "memory": len(model.decoder.layers)}
