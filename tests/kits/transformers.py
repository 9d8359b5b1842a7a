"""Small Transformers and twins made of ``transformer.formulas``."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from transformer import (
    DecoderOnly,
    DecoderOnlyConfig,
    LanguageModel,
    Transformer,
    TransformerConfig,
    formulas,
)
from transformer.config import LayerConfig
from transformer.model import STANDARD, Layer, Parts
from transformer.multihead import CrossAttention, SelfAttention

D, HEADS, SRC_V, TGT_V = 16, 4, 11, 13
B, S, T = 3, 6, 5
LENGTHS = (S, 4, 1)
EXACT = {"rtol": 0.0, "atol": 1e-12}

Model = TypeVar("Model", bound=nn.Module)


def small(**changes: Any) -> TransformerConfig:
    sizes = {"d_model": D, "num_heads": HEADS, "encoder_layers": 2, "decoder_layers": 3, "ffn_size": 32}
    return TransformerConfig(**{**sizes, "dropout": 0.0, **changes})


def small_only(**changes: Any) -> DecoderOnlyConfig:
    sizes = {"d_model": D, "num_heads": HEADS, "num_layers": 3, "ffn_size": 32}
    return DecoderOnlyConfig(**{**sizes, "dropout": 0.0, **changes})


def far(model: Model) -> Model:
    """Move every weight far from its start: biases and norms count, attention is sharp."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def make(parts: Parts = STANDARD, **changes: Any) -> Transformer:
    joint = changes.get("tie") == "all"
    return far(Transformer(small(**changes), TGT_V if joint else SRC_V, TGT_V, parts))


def make_only(**changes: Any) -> DecoderOnly:
    joint = changes.get("tie") == "all"
    return far(DecoderOnly(small_only(**changes), TGT_V if joint else SRC_V, TGT_V))


def make_language_model(**changes: Any) -> LanguageModel:
    changes = {name: value for name, value in changes.items() if name not in ("encoder_mask", "cross_mask")}
    return far(LanguageModel(small_only(**changes), TGT_V))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources (B, S) of LENGTHS with noise for padding, their mask, and targets (B, T)."""
    src_mask = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
    return torch.randint(SRC_V, (B, S)), src_mask, torch.randint(TGT_V, (B, T))


def stepped(model: Any, src: Tensor, mask: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits (B, T, V) of tgt (B, T) step by step."""
    memory, steps = model.encode(src, mask), []
    state = model.init_state(memory, 1, tgt.size(1))
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        steps.append(logits)
    return torch.cat(steps, dim=1)


AROUND = {"pre": formulas.pre_norm, "post": formulas.post_norm, "none": formulas.no_norm}
ACTIVATIONS = {"relu": formulas.relu, "gelu": formulas.gelu, "swiglu": formulas.swiglu}
ZERO = torch.zeros((), dtype=torch.float64)


def layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x
    if isinstance(norm, nn.RMSNorm):
        return formulas.rms_norm(x, norm.weight)
    return formulas.layer_norm(x, norm.weight, ZERO if norm.bias is None else norm.bias)


def visible(mask: str, i: int, j: int) -> bool:
    """Return whether a pattern lets position i attend to position j."""
    if mask.startswith("window"):
        return abs(i - j) <= int(mask.split(":")[1])
    return mask == "full" or j <= i


def affine(linear: nn.Linear, x: Tensor) -> Tensor:
    return x @ linear.weight.T + (ZERO if linear.bias is None else linear.bias)


def attend(
    module: SelfAttention | CrossAttention,
    x: Tensor,
    memory: Tensor,
    allowed: Tensor,
    config: LayerConfig,
    order: nn.Module | None = None,
) -> Tensor:
    """Let x (N, D) attend to memory (M, E) where ``allowed`` (N, M); ``order`` has the biases of "t5"."""
    size = config.head_size or config.d_model // config.num_heads
    kv_heads = config.num_kv_heads or config.num_heads
    sizes = size * config.num_heads, size * kv_heads, (config.value_size or size) * kv_heads
    parts = zip(
        project(module, x, memory, sizes, config), (config.num_heads, kv_heads, kv_heads), strict=True
    )
    queries, keys, values = (part.chunk(heads, dim=1) for part, heads in parts)
    heads = []
    for head, query in enumerate(queries):
        shared = formulas.kv_head(head, config.num_heads, kv_heads)
        heads.append(attend_head(module, head, query, keys[shared], values[shared], allowed, config, order))
    if config.projections == "none":
        return formulas.multi_head(heads, torch.eye(len(x[0])))
    multi_head = formulas.multi_head(heads, module.project_out.weight)
    return multi_head if module.project_out.bias is None else multi_head + module.project_out.bias


def project(
    module: SelfAttention | CrossAttention,
    x: Tensor,
    memory: Tensor,
    sizes: tuple[int, ...],
    config: LayerConfig,
) -> tuple[Tensor, ...]:
    """Compute queries, keys and values of all heads, each side by side."""
    if config.projections == "none":
        return formulas.project(x, memory, *[torch.eye(len(x[0]))] * 3)
    if isinstance(module, CrossAttention):
        layers = side_by_side(module.project_query, sizes[:1])
        layers += side_by_side(module.project_memory, sizes[1:])
    elif config.projections == "shared-qk":
        of_both, of_values = side_by_side(module.project_in, sizes[1:])
        layers = [of_both, of_both, of_values]
    else:
        layers = side_by_side(module.project_in, sizes)
    weights, biases = zip(*layers, strict=True)
    parts = formulas.project(x, memory, *weights)
    return tuple(part + bias for part, bias in zip(parts, biases, strict=True))


def side_by_side(linear: nn.Linear, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return matrix and bias of each of the linear layers that one computes together."""
    biases = [ZERO] * len(sizes) if linear.bias is None else linear.bias.split(sizes)
    return list(zip(linear.weight.split(sizes), biases, strict=True))


def attend_head(
    module: nn.Module,
    head: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor,
    config: LayerConfig,
    order: nn.Module | None,
) -> Tensor:
    positions = config.positions if isinstance(module, SelfAttention) else "none"
    if positions == "rotary":
        q, k = (torch.stack([formulas.rotary(row, n) for n, row in enumerate(rows)]) for rows in (q, k))
    if positions == "relative":
        return attend_by_distance(module, q, k, v, allowed, config)
    if config.attention_kind == "linear":
        weights = torch.where(allowed, formulas.linear_weights(q, k), 0)
        return weights / weights.sum(1, keepdim=True) @ v
    g = module.qk_scale
    if positions == "t5":
        return weigh(q, k, allowed, config, bias=t5_bias(order, head, len(q)), g=g) @ v
    if positions != "alibi" and config.attention_kind == "scaled" and allowed.all() and g is None:
        return formulas.attention(q, k, v)
    slope = formulas.alibi_slope(head, config.num_heads) if positions == "alibi" else None
    return weigh(q, k, allowed, config, slope, g=g) @ v


def t5_bias(order: nn.Module, head: int, length: int) -> Tensor:
    """The bias of each pair of positions: of both directions, or, in a decoder, of the positions before."""
    buckets = 32 if order.causal else 16

    def bucket(i: int, j: int) -> int:
        if order.causal:
            return formulas.t5_bucket(max(i - j, 0), order.limit, buckets)
        return formulas.t5_bucket(abs(i - j), order.limit, buckets) + (buckets if j > i else 0)

    rows = [[order.bias.weight[bucket(i, j), head] for j in range(length)] for i in range(length)]
    return torch.stack([torch.stack(row) for row in rows])


def weigh(
    q: Tensor,
    k: Tensor,
    allowed: Tensor,
    config: LayerConfig,
    slope: float | None = None,
    bias: Tensor | float = 0.0,
    g: Tensor | None = None,
) -> Tensor:
    e = (formulas.unscaled_scores if config.attention_kind == "unscaled" else formulas.scaled_scores)(q, k)
    e = (e if g is None else formulas.qk_norm_scores(q, k, g)) + bias
    e = torch.where(allowed, e if slope is None else formulas.alibi(e, slope), float("-inf"))
    return (formulas.hard_weights if config.attention_kind == "hard" else formulas.softmax)(e)


def attend_by_distance(
    module: SelfAttention, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, config: LayerConfig
) -> Tensor:
    rows = []
    for i in range(len(q)):
        index = formulas.relative_index(i, len(k), config.max_distance or 16)
        keys, values = k + module.relative.keys.weight[index], v + module.relative.values.weight[index]
        rows.append(weigh(q[i : i + 1], keys, allowed[i : i + 1], config) @ values)
    return torch.cat(rows)


def feed_forward(layer: Layer, config: LayerConfig) -> Callable[[Tensor], Tensor]:
    wide, narrow = layer.feed_forward.widen, layer.feed_forward.narrow
    b_1, b_2 = (wide.bias, narrow.bias) if config.bias else (ZERO, ZERO)
    weights = {"w_1": wide.weight, "b_1": b_1, "w_2": narrow.weight, "b_2": b_2}
    return partial(formulas.feed_forward, **weights, f=ACTIVATIONS[config.activation])


def embed(model: nn.Module, embedding: nn.Embedding, ids: Tensor, start: int, config: LayerConfig) -> Tensor:
    rows = []
    for n, token in enumerate(ids.tolist(), start=start):
        row = formulas.scaled_embedding(embedding.weight[token])
        match config.positions:
            case "sinusoidal":
                row = row + formulas.sinusoid(n, config.d_model)
            case "learned":
                row = row + formulas.scaled_embedding(model.place.places.weight[n])
            case "network":
                first, _, second = model.place.network
                h = formulas.gelu(first.weight @ formulas.sinusoid(n, config.d_model) + first.bias)
                row = row + second.weight @ h + second.bias
            case "concat":
                row = torch.cat((row[: -config.position_size], formulas.sinusoid(n, config.position_size)))
            case "concat-learned":
                where = model.place.places.weight[n]
                row = torch.cat((row[: -len(where)], formulas.scaled_embedding(where)))
        rows.append(row)
    return torch.stack(rows)


def norms_of(*residuals: nn.Module) -> list[Callable[[Tensor], Tensor]]:
    return [partial(layer_norm, residual.norm) for residual in residuals]


def stack(model: nn.Module, x: Tensor, allowed: Tensor, config: LayerConfig) -> Tensor:
    """Apply all self-attention layers and the last norm to x (N, D)."""
    for layer in model.layers:
        norms = norms_of(layer.around_attention, layer.around_feed_forward)
        ffn = feed_forward(layer, config)

        def self_attend(h: Tensor, module: SelfAttention = layer.attention) -> Tensor:
            return attend(module, h, h, allowed, config, model.order)

        x = formulas.encoder_layer(x, self_attend, ffn, norms, AROUND[config.norm])
    return layer_norm(model.norm, x)


def allow(rows: int, columns: int, rule: Callable[[int, int], bool]) -> Tensor:
    return torch.tensor([[rule(i, j) for j in range(columns)] for i in range(rows)])


def causal(length: int, config: LayerConfig) -> Tensor:
    return formulas.causal(length) & allow(length, length, lambda t, s: visible(config.decoder_mask, t, s))


def across(tgt_len: int, src_len: int, config: LayerConfig) -> Tensor:
    """Mask of target and source positions; a window stays at the last source token."""
    mask = config.cross_mask
    last = src_len - 1 if mask.startswith("window") else tgt_len
    return allow(tgt_len, src_len, lambda t, s: visible(mask, min(t, last), s))


def encoder_twin(encoder: nn.Module, src: Tensor, config: TransformerConfig, allowed: Tensor) -> Tensor:
    """Compute the states of one sentence src (S,)."""
    return stack(encoder, embed(encoder, encoder.table, src, 0, config), allowed, config)


def decoder_twin(decoder: nn.Module, states: Tensor, tgt: Tensor, config: TransformerConfig) -> Tensor:
    """Compute the hidden states (T, D) of one target tgt (T,), after states (S, E)."""
    before, source = causal(len(tgt), config), across(len(tgt), len(states), config)
    x = embed(decoder, decoder.table, tgt, 0, config)
    for layer in decoder.layers:
        norms = norms_of(layer.around_attention, layer.around_cross, layer.around_feed_forward)
        ffn = feed_forward(layer, config)

        def self_attend(h: Tensor, module: SelfAttention = layer.attention) -> Tensor:
            return attend(module, h, h, before, config, decoder.order)

        def cross(h: Tensor, module: CrossAttention = layer.cross) -> Tensor:
            return attend(module, h, states, source, config)

        x = formulas.decoder_layer(x, self_attend, cross, ffn, norms, AROUND[config.norm])
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
    x = [embed(model, model.src_table, src, 0, model.config), embed(model, model.table, tgt, s, model.config)]
    return stack(model, torch.cat(x), allowed, model.config)[s:] @ model.output.weight.T


def language_model_twin(model: LanguageModel, ids: Tensor) -> Tensor:
    """Compute logits (T, V) of one text (T,)."""
    x = embed(model, model.table, ids, 0, model.config)
    return stack(model, x, causal(len(ids), model.config), model.config) @ model.output.weight.T
