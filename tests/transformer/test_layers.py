"""Layers of the Transformer, and stacks of them, against torch's own layers with the same weights."""

import pytest
import torch
from torch import Tensor, nn

from tests.kits.transformer import (
    HEADS,
    LENGTHS,
    NORMS,
    B,
    D,
    S,
    T,
    batch,
    float64,
    make,
    make_language_model,
    make_only,
)
from transformer.config import LayerConfig
from transformer.layers import DecoderLayer, EncoderLayer

_float64 = pytest.fixture(autouse=True)(float64)
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "gelu"])
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


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


@NORMS
@ACTIVATIONS
def test_encoder_layer_and_its_gradient_are_torchs(norm, activation):
    model = make(norm=norm, activation=activation)
    layer, mask = model.encoder.layers[0], batch()[1]
    theirs = torch_layer(layer, model.config)
    x = torch.randn(B, S, D, requires_grad=True)
    (twin := x.detach().clone()).requires_grad_()
    ours_out = layer(x, mask[:, None, None, :])[mask]
    their_out = theirs(twin, src_key_padding_mask=~mask)[mask]
    torch.testing.assert_close(ours_out, their_out, **CLOSE)
    (ours_out**2).sum().backward()
    (their_out**2).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad, **CLOSE)
    torch.testing.assert_close(
        layer.attention.project_in.weight.grad, theirs.self_attn.in_proj_weight.grad, **CLOSE
    )


@NORMS
@ACTIVATIONS
def test_decoder_layer_is_torchs(norm, activation):
    model = make(norm=norm, activation=activation)
    layer, mask = model.decoder.layers[0], batch()[1]
    theirs = torch_layer(layer, model.config)
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    expected = theirs(x, states, tgt_mask=FUTURE, memory_key_padding_mask=~mask)
    output = layer(x, layer.cross.remember(states), mask[:, None, None, :])
    torch.testing.assert_close(output, expected, **CLOSE)


@NORMS
def test_the_whole_model_is_a_stack_of_torchs_layers(norm):
    model, (src, mask, tgt) = make(norm=norm), batch()
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
    torch.testing.assert_close(model(src, mask, tgt), logits, **CLOSE)


@NORMS
def test_an_encoder_under_a_general_mask_is_torchs(norm):
    """Random pairs are forbidden, sentence by sentence; each position keeps the first token."""
    model, (src, mask, _) = make(norm=norm), batch()
    allowed = torch.rand(B, S, S) < 0.5
    allowed[..., 0] = True
    forbidden = ~(allowed & mask.unsqueeze(1)).repeat_interleave(HEADS, 0)
    states = embed(model.encoder, model.encoder.table, src, FIRST)
    for layer in model.encoder.layers:
        states = torch_layer(layer, model.config)(states, src_mask=forbidden)
    found, _, _ = model.encoder(src, mask, allowed=allowed)
    torch.testing.assert_close(found[mask], model.encoder.norm(states)[mask], **CLOSE)
    assert not torch.allclose(found[mask], model.encoder(src, mask)[0][mask])


@NORMS
@ACTIVATIONS
def test_a_decoder_only_model_is_torchs_encoder_under_a_prefix_mask(norm, activation):
    """An explicit (S + T) x (S + T) mask per sentence, and the gradient of every layer's weights."""
    model, (src, mask, tgt) = make_only(norm=norm, activation=activation), batch()
    forbidden = torch.ones(B, S + T, S + T, dtype=torch.bool)
    for b, length in enumerate(LENGTHS):
        forbidden[b, :, :length] = False
        forbidden[b, S:, S:] = FUTURE
    twins = [torch_layer(layer, model.config) for layer in model.layers]
    starts = torch.tensor(LENGTHS)
    x = torch.cat((embed(model, model.src_table, src, FIRST), embed(model, model.table, tgt, starts)), dim=1)
    for twin in twins:
        x = twin(x, src_mask=forbidden.repeat_interleave(HEADS, 0))
    expected, logits = model.norm(x)[:, S:] @ model.output.weight.T, model(src, mask, tgt)
    torch.testing.assert_close(logits, expected, **CLOSE)
    expected.square().sum().backward()
    by_twin = [(twin.self_attn.in_proj_weight.grad, twin.linear1.weight.grad) for twin in twins]
    embedding_grads = [embedding.weight.grad.clone() for embedding in (model.src_table, model.table)]
    model.zero_grad()
    logits.square().sum().backward()
    for layer, twin in zip(model.layers, by_twin, strict=True):
        ours = (layer.attention.project_in.weight.grad, layer.feed_forward.widen.weight.grad)
        torch.testing.assert_close(ours, twin, **CLOSE)
    ours = [model.src_table.weight.grad, model.table.weight.grad]
    torch.testing.assert_close(ours, embedding_grads, **CLOSE)


@NORMS
def test_a_language_model_is_torchs_encoder_under_a_causal_mask(norm):
    model, ids = make_language_model(norm=norm), batch()[2]
    x = embed(model, model.table, ids, FIRST)
    for layer in model.layers:
        x = torch_layer(layer, model.config)(x, src_mask=FUTURE)
    torch.testing.assert_close(model(ids), model.norm(x) @ model.output.weight.T, **CLOSE)
