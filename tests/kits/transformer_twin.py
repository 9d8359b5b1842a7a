"""Slow twins of the Transformers, from the papers: one sentence at a time, no padding, one product per head.

Shapes: S source and T target positions, N and M rows, D model width, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer import DecoderOnly, LanguageModel, Transformer, TransformerConfig
from transformer.config import LayerConfig
from transformer.layers import DecoderLayer, EncoderLayer, Residual
from transformer.multihead import CrossAttention, SelfAttention


def layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x
    if isinstance(norm, nn.RMSNorm):
        return torch.stack([row / ((row @ row) / len(row) + 1e-6).sqrt() for row in x]) * norm.weight
    centred = x - x.mean(-1, keepdim=True)
    normalised = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    return normalised if norm.bias is None else normalised + norm.bias


def around(residual: Residual, norm: str, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    if norm == "none":
        return x + f(x)
    if norm == "post":
        return layer_norm(residual.norm, x + f(x))
    return x + f(layer_norm(residual.norm, x))


def visible(mask: str, i: int, j: int) -> bool:
    """Whether a pattern lets position i attend to position j."""
    if mask.startswith("window"):
        return abs(i - j) <= int(mask.split(":")[1])
    return mask == "full" or j <= i


def turn(x: Tensor, p: int) -> Tensor:
    """Multiply pairs of numbers, read as complex ones, by exp(i p theta): Su et al. 2021, equation 13."""
    theta = torch.tensor([p / 10000 ** (2 * n / len(x)) for n in range(len(x) // 2)])
    turned = torch.view_as_complex(x.reshape(-1, 2)) * torch.exp(1j * theta)
    return torch.view_as_real(turned).flatten()


def slope(head: int, heads: int) -> float:
    """Slope of a head, counted from 0: Press et al. 2022, section 3, and their code for other numbers."""
    whole = 2 ** math.floor(math.log2(heads))
    if head < whole:
        return (2 ** (-8 / whole)) ** (head + 1)
    return (2 ** (-8 / (2 * whole))) ** (2 * (head - whole) + 1)


def weigh(scores: Tensor, kind: str) -> Tensor:
    """Turn the scores (M,) of one query into weights; forbidden ones are -inf."""
    likelihood = torch.where(scores.isinf(), 0.0, scores if kind == "linear" else scores.exp())
    soft = likelihood / likelihood.sum()
    if kind != "hard":
        return soft
    return torch.nn.functional.one_hot(scores.argmax(), len(scores)) + soft - soft.detach()


def attend(
    module: SelfAttention | CrossAttention, x: Tensor, memory: Tensor, allowed: Tensor, config: LayerConfig
) -> Tensor:
    """Let x (N, D) attend to memory (M, E) where ``allowed`` (N, M); a matrix for each head and role."""
    size = config.head_size or config.d_model // config.num_heads
    value_size = config.value_size or size
    wide, is_self = size * config.num_heads, isinstance(module, SelfAttention)
    if is_self:
        weights, biases = module.project_in.weight, module.project_in.bias
        w_q, w_k, w_v = weights[:wide], weights[wide : 2 * wide], weights[2 * wide :]
        biases = torch.zeros(len(weights)) if biases is None else biases
        b_q, b_k, b_v = biases[:wide], biases[wide : 2 * wide], biases[2 * wide :]
    else:
        w_q, merged = module.project_query.weight, module.project_memory.weight
        b_q = module.project_query.bias if config.bias else torch.zeros(wide)
        biases = module.project_memory.bias if config.bias else torch.zeros(len(merged))
        w_k, w_v, b_k, b_v = merged[:wide], merged[wide:], biases[:wide], biases[wide:]
    rows: list[Tensor] = [torch.zeros(config.d_model) for _ in x]
    for head in range(config.num_heads):
        part, value_part = (slice(n * head, n * (head + 1)) for n in (size, value_size))
        q, k = x @ w_q[part].T + b_q[part], memory @ w_k[part].T + b_k[part]
        v = memory @ w_v[value_part].T + b_v[value_part]
        if is_self and config.positions == "rotary":
            q, k = (torch.stack([turn(row, n) for n, row in enumerate(rows_)]) for rows_ in (q, k))
        if config.attention_kind == "linear":
            q, k = (torch.where(rows_ > 0, rows_ + 1, rows_.exp()) for rows_ in (q, k))
        for i in range(len(x)):
            keys, values = k, v
            if is_self and config.positions == "relative":
                limit = config.max_distance or 16
                distance = [min(max(j - i, -limit), limit) + limit for j in range(len(memory))]
                keys = k + torch.stack([module.relative.keys.weight[n] for n in distance])
                values = v + torch.stack([module.relative.values.weight[n] for n in distance])
            scores = keys @ q[i] / (1 if config.attention_kind == "unscaled" else math.sqrt(size))
            if is_self and config.positions == "alibi":
                far = torch.tensor([float(abs(i - j)) for j in range(len(memory))])
                scores = scores - slope(head, config.num_heads) * far
            scores = torch.where(allowed[i], scores, float("-inf"))
            context = weigh(scores, config.attention_kind) @ values
            rows[i] = rows[i] + module.project_out.weight[:, value_part] @ context
    return torch.stack(rows) + (module.project_out.bias if config.bias else 0)


def feed_forward(layer: EncoderLayer | DecoderLayer, config: LayerConfig) -> Callable[[Tensor], Tensor]:
    wide, narrow = layer.feed_forward.widen, layer.feed_forward.narrow

    def run(x: Tensor) -> Tensor:
        h = x @ wide.weight.T + (wide.bias if config.bias else 0)
        if config.activation == "swiglu":
            gate, linear = h[:, : config.ffn_size], h[:, config.ffn_size :]
            h = gate / (1 + (-gate).exp()) * linear
        else:
            h = h.clamp(min=0) if config.activation == "relu" else h * (1 + torch.erf(h / math.sqrt(2))) / 2
        return h @ narrow.weight.T + (narrow.bias if config.bias else 0)

    return run


def sinusoid(n: int, size: int) -> Tensor:
    angles = [n / 10000 ** (2 * i / size) for i in range(size // 2)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])


def embed(model: nn.Module, embedding: nn.Embedding, ids: Tensor, start: int, config: LayerConfig) -> Tensor:
    rows = []
    for n, token in enumerate(ids.tolist(), start=start):
        row = embedding.weight[token] * math.sqrt(config.d_model)
        match config.positions:
            case "sinusoidal":
                row = row + sinusoid(n, config.d_model)
            case "learned":
                row = row + model.place.places.weight[n] * math.sqrt(config.d_model)
            case "network":
                first, _, second = model.place.network
                h = first.weight @ sinusoid(n, config.d_model) + first.bias
                row = row + second.weight @ (h * (1 + torch.erf(h / math.sqrt(2))) / 2) + second.bias
            case "concat":
                row = torch.cat((row[: -config.position_size], sinusoid(n, config.position_size)))
            case "concat-learned":
                where = model.place.places.weight[n]
                row = torch.cat((row[: -len(where)], where * math.sqrt(len(where))))
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


def allow(rows: int, columns: int, rule: Callable[[int, int], bool]) -> Tensor:
    return torch.tensor([[rule(i, j) for j in range(columns)] for i in range(rows)])


def causal(length: int, config: LayerConfig) -> Tensor:
    return allow(length, length, lambda t, s: s <= t and visible(config.decoder_mask, t, s))


def across(tgt_len: int, src_len: int, config: LayerConfig) -> Tensor:
    """Mask of target and source positions; a window stays at the last source token."""
    mask = config.cross_mask
    clamp = src_len - 1 if mask.startswith("window") else tgt_len
    return allow(tgt_len, src_len, lambda t, s: visible(mask, min(t, clamp), s))


def encoder_twin(encoder: nn.Module, src: Tensor, config: TransformerConfig, allowed: Tensor) -> Tensor:
    """Compute the states of one sentence src (S,)."""
    return stack(encoder, embed(encoder, encoder.table, src, 0, config), allowed, config)


def decoder_twin(decoder: nn.Module, states: Tensor, tgt: Tensor, config: TransformerConfig) -> Tensor:
    """Compute the hidden states (T, D) of one target tgt (T,), after states (S, E)."""
    own, source = causal(len(tgt), config), across(len(tgt), len(states), config)
    x = embed(decoder, decoder.table, tgt, 0, config)
    for layer in decoder.layers:
        steps = [
            (layer.around_attention, lambda h, m=layer.attention: attend(m, h, h, own, config)),
            (layer.around_cross, lambda h, m=layer.cross: attend(m, h, states, source, config)),
            (layer.around_feed_forward, feed_forward(layer, config)),
        ]
        for residual, f in steps:
            x = around(residual, config.norm, x, f)
    return layer_norm(decoder.norm, x)


def transformer_twin(model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute logits (T, V) of one pair src (S,), tgt (T,)."""
    allowed = allow(len(src), len(src), lambda i, j: visible(model.config.encoder_mask, i, j))
    states = encoder_twin(model.encoder, src, model.config, allowed)
    return decoder_twin(model.decoder, states, tgt, model.config) @ model.output.weight.T


def decoder_only_twin(model: DecoderOnly, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute logits (T, V) of one pair src (S,), tgt (T,)."""
    s, n = len(src), len(src) + len(tgt)
    allowed = torch.zeros(n, n, dtype=torch.bool)
    allowed[:s, :s] = allow(s, s, lambda i, j: visible(model.config.encoder_mask, i, j))
    allowed[s:, :s] = across(len(tgt), s, model.config)
    allowed[s:, s:] = causal(len(tgt), model.config)
    x = [
        embed(model, model.src_table, src, 0, model.config),
        embed(model, model.table, tgt, s, model.config),
    ]
    return stack(model, torch.cat(x), allowed, model.config)[s:] @ model.output.weight.T


def language_model_twin(model: LanguageModel, ids: Tensor) -> Tensor:
    """Compute logits (T, V) of one text (T,)."""
    x = embed(model, model.table, ids, 0, model.config)
    return stack(model, x, causal(len(ids), model.config), model.config) @ model.output.weight.T
