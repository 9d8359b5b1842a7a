"""Slow twins of the Transformers, from the papers: one sentence at a time, no padding, one product per head.

Shapes: S source and T target positions, N and M rows, D model width, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer import DecoderOnly, LanguageModel, Transformer, TransformerConfig
from transformer.config import LayerConfig
from transformer.layers import DecoderLayer, EncoderLayer
from transformer.multihead import CrossAttention, SelfAttention
from transformer.parts import Residual


def layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def around(residual: Residual, norm: str, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    if norm == "post":
        return layer_norm(residual.norm, x + f(x))
    return x + f(layer_norm(residual.norm, x))


def attend(
    module: SelfAttention | CrossAttention, x: Tensor, memory: Tensor, allowed: Tensor, config: LayerConfig
) -> Tensor:
    """Let x (N, D) attend to memory (M, E) where ``allowed`` (N, M); a matrix for each head and role."""
    size = config.head_size or config.d_model // config.num_heads
    if isinstance(module, SelfAttention):
        weights, biases = module.project_in.weight, module.project_in.bias
        (w_q, w_k, w_v), (b_q, b_k, b_v) = weights.chunk(3), biases.chunk(3)
    else:
        w_q, b_q = module.project_query.weight, module.project_query.bias
        (w_k, w_v), (b_k, b_v) = module.project_memory.weight.chunk(2), module.project_memory.bias.chunk(2)
    output = module.project_out.bias
    for head in range(config.num_heads):
        part = slice(size * head, size * (head + 1))
        q, k = x @ w_q[part].T + b_q[part], memory @ w_k[part].T + b_k[part]
        v = memory @ w_v[part].T + b_v[part]
        likelihood = torch.where(allowed, (q @ k.T / math.sqrt(size)).exp(), 0.0)
        weights = likelihood / likelihood.sum(1, keepdim=True)
        output = output + weights @ v @ module.project_out.weight[:, part].T
    return output


def feed_forward(layer: EncoderLayer | DecoderLayer, config: LayerConfig) -> Callable[[Tensor], Tensor]:
    wide, narrow = layer.feed_forward.widen, layer.feed_forward.narrow

    def run(x: Tensor) -> Tensor:
        h = x @ wide.weight.T + wide.bias
        h = h.clamp(min=0) if config.activation == "relu" else h * (1 + torch.erf(h / math.sqrt(2))) / 2
        return h @ narrow.weight.T + narrow.bias

    return run


def embed(model: nn.Module, embedding: nn.Embedding, ids: Tensor, start: int, config: LayerConfig) -> Tensor:
    rows = []
    for n, token in enumerate(ids.tolist(), start=start):
        row = embedding.weight[token] * math.sqrt(config.d_model)
        if config.positions == "sinusoidal":
            angles = [n / 10000 ** (2 * i / config.d_model) for i in range(config.d_model // 2)]
            row = row + torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])
        elif config.positions == "learned":
            row = row + model.place.places.weight[n] * math.sqrt(config.d_model)
        rows.append(row)
    return torch.stack(rows)


def stack(model: nn.Module, x: Tensor, allowed: Tensor, config: LayerConfig) -> Tensor:
    """Apply all self-attention layers and the last norm to x (N, D)."""
    for layer in model.layers:
        x = around(
            layer.around_attention,
            config.norm,
            x,
            lambda h, layer=layer: attend(layer.attention, h, h, allowed, config),
        )
        x = around(layer.around_feed_forward, config.norm, x, feed_forward(layer, config))
    return layer_norm(model.norm, x)


def causal(length: int) -> Tensor:
    return torch.tensor([[s <= t for s in range(length)] for t in range(length)])


def encoder_twin(encoder: nn.Module, src: Tensor, config: TransformerConfig, allowed: Tensor) -> Tensor:
    """Compute the states of one sentence src (S,)."""
    return stack(encoder, embed(encoder, encoder.table, src, 0, config), allowed, config)


def decoder_twin(decoder: nn.Module, states: Tensor, tgt: Tensor, config: TransformerConfig) -> Tensor:
    """Compute the hidden states (T, D) of one target tgt (T,), after states (S, E)."""
    everywhere = torch.ones(len(tgt), len(states), dtype=torch.bool)
    x = embed(decoder, decoder.table, tgt, 0, config)
    for layer in decoder.layers:
        steps = [
            (layer.around_attention, lambda h, m=layer.attention: attend(m, h, h, causal(len(tgt)), config)),
            (layer.around_cross, lambda h, m=layer.cross: attend(m, h, states, everywhere, config)),
            (layer.around_feed_forward, feed_forward(layer, config)),
        ]
        for residual, f in steps:
            x = around(residual, config.norm, x, f)
    return layer_norm(decoder.norm, x)


def transformer_twin(model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute logits (T, V) of one pair src (S,), tgt (T,)."""
    everywhere = torch.ones(len(src), len(src), dtype=torch.bool)
    states = encoder_twin(model.encoder, src, model.config, everywhere)
    return decoder_twin(model.decoder, states, tgt, model.config) @ model.output.weight.T


def decoder_only_twin(model: DecoderOnly, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute logits (T, V) of one pair src (S,), tgt (T,)."""
    s, n = len(src), len(src) + len(tgt)
    allowed = torch.tensor([[column < s or column <= row for column in range(n)] for row in range(n)])
    x = [
        embed(model, model.src_table, src, 0, model.config),
        embed(model, model.table, tgt, s, model.config),
    ]
    return stack(model, torch.cat(x), allowed, model.config)[s:] @ model.output.weight.T


def language_model_twin(model: LanguageModel, ids: Tensor) -> Tensor:
    """Compute logits (T, V) of one text (T,)."""
    x = embed(model, model.table, ids, 0, model.config)
    return stack(model, x, causal(len(ids)), model.config) @ model.output.weight.T
