"""Multi-head attention: Vaswani et al. 2017, section 3.2.2; its cache in decoding, and the state of a model.

Shapes: B sentences, T target, Q query and S key positions, K hypotheses, H heads of width E, D model width.
Masks are bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from .attention import (
    Attend,
    KeysValues,
    elu_features,
    fused_attention,
    hard_weights,
    prefix_attention,
    shares,
    softmax,
)
from .config import LayerConfig
from .masks import mask_bias, restrict_to_past
from .positions import Relation, RelativeVectors, rotate

FIRST_QK_SCALE = 10.0
"""First g of ``qk_norm``: log2(L^2 - L) for L = 32 words, Henry et al. 2020, section 3."""


class KeyValueCache:
    """Keys and values of up to ``capacity`` tokens for K hypotheses of each of B sentences.

    A leaf of a decoding state: ``select`` and ``keep`` change it in place. It is stored as (capacity, 2, B,
    K, D), time first, so that the used part is one contiguous block, appending a token is one write, and (B,
    K, heads) still merge into one dimension of a batched product. Reordering copies that block into a second
    buffer. Keys and values are stored as wide as the wider of them.
    """

    def __init__(self, like: Tensor, shape: tuple[int, int, int], capacity: int) -> None:
        self.length = 0
        self._buffer = like.new_empty(capacity, 2, *shape)
        self._spare: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the next token of each hypothesis, without gradients: keys and values (B, K, D) or narrower.

        Returns those of all tokens so far, as wide as the new ones, (length, B, K, D). A ValueError says that
        the cache is full.
        """
        if self.length == self._buffer.size(0):
            raise ValueError(f"the state holds {self.length} tokens at most: give init_state more capacity")
        stored = []
        for part, new in zip(self._buffer[: self.length + 1].unbind(1), (keys, values), strict=True):
            stored.append(part if part.size(-1) == new.size(-1) else part[..., : new.size(-1)])
            stored[-1][self.length] = new.detach()
        self.length += 1
        return stored[0], stored[1]

    def select(self, parents: Tensor) -> Self:
        """Reorder hypotheses: hypothesis k of sentence b continues ``parents[b, k]``; parents is (B, K)."""
        sentences, beam = parents.shape
        if beam == 1:
            return self  # a single hypothesis can only continue itself
        offsets = torch.arange(sentences, device=parents.device).unsqueeze(1) * beam
        if self._spare is None:
            self._spare = torch.empty_like(self._buffer)
        source, target = (
            buffer[: self.length].view(self.length, 2, sentences * beam, -1)
            for buffer in (self._buffer, self._spare)
        )
        torch.index_select(source, 2, (offsets + parents).flatten(), out=target)
        self._buffer, self._spare = self._spare, self._buffer
        return self

    def keep(self, rows: Tensor) -> Self:
        """Drop all sentences but ``rows``, indices (B',)."""
        buffer = self._buffer.new_empty(*self._buffer.shape[:2], rows.numel(), *self._buffer.shape[3:])
        torch.index_select(self._buffer[: self.length], 2, rows, out=buffer[: self.length])
        self._buffer, self._spare = buffer, None
        return self


class RecurrentCache:
    """State of a recurrent layer for K hypotheses of each of B sentences: one or more tensors (B, K, ...)."""

    def __init__(self, state: tuple[Tensor, ...]) -> None:
        self.state, self.length = state, 0

    def select(self, parents: Tensor) -> Self:
        """Reorder hypotheses, as ``KeyValueCache`` does."""
        rows = torch.arange(parents.size(0), device=parents.device).unsqueeze(1)
        self.state = tuple(part[rows, parents] for part in self.state)
        return self

    def keep(self, rows: Tensor) -> Self:
        """Drop all sentences but ``rows``."""
        self.state = tuple(part[rows] for part in self.state)
        return self


class Features(NamedTuple):
    """Input of the output layer, (B, T, D); no source position is sampled."""

    hidden: Tensor
    choices: None = None


class Memory(NamedTuple):
    """Encoded sources, computed once per sentence."""

    layers: tuple[KeysValues, ...]
    """Per layer, the keys and values of the source: for cross-attention, or of the prefix (DecoderOnly). A
    layer that does not attend to the source has ()."""
    mask: Tensor
    """True at real source tokens, (B, 1, 1, S)."""


class State(NamedTuple):
    """Decoding state of B x K hypotheses."""

    layers: tuple[KeyValueCache | RecurrentCache, ...]
    """Per layer, the cached keys and values of self-attention, or the state of what is in its place."""

    @property
    def length(self) -> int:
        """Number of tokens fed so far."""
        return self.layers[0].length


class MultiHead(nn.Module):
    """Settings and queries that self-attention and attention to a source have in common."""

    def __init__(self, config: LayerConfig, attend: Attend) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = config.num_heads, config.kv_heads
        is_grouped = config.kv_heads != config.num_heads
        self.attend = GroupedAttention(attend, config.kv_heads) if is_grouped else attend
        self.dropout, self.is_linear = config.attention_dropout, config.attention_kind == "linear"
        # Undoes the division of scores by sqrt(E).
        self.factor = math.sqrt(config.query_size) if config.attention_kind == "unscaled" else None
        self.projections = config.projections
        self.qk_scale = None
        if config.qk_norm:
            self.factor = math.sqrt(config.query_size)
            self.qk_scale = nn.Parameter(torch.tensor(FIRST_QK_SCALE))

    def _prepare(self, query: Tensor) -> Tensor:
        """Return the queries (..., H E) that the attention function takes; for linear attention features."""
        if self.qk_scale is not None:
            query = normalise_heads(query, self.num_heads) * self.qk_scale.to(query.dtype)
        query = query if self.factor is None else query * self.factor
        return elu_features(query) if self.is_linear else query

    def _prepare_keys(self, keys: Tensor) -> Tensor:
        if self.qk_scale is not None:
            keys = normalise_heads(keys, self.kv_heads)
        return elu_features(keys) if self.is_linear else keys

    @property
    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0


class SelfAttention(MultiHead):
    """Every position of a sequence attends to the sequence; queries, keys and values are one product.

    Concat(head_1, ..., head_H) W_O, where head_i = Attention(x W_Q_i, x W_K_i, x W_V_i). All W_Q, W_K and W_V
    together are the matrix of ``project_in``, W_O is that of ``project_out``; both have biases, unless the
    config says otherwise. With ``num_kv_heads`` neighbouring heads share W_K_i and W_V_i. With "shared-qk" as
    ``projections`` W_K_i is W_Q_i, with "none" there is no matrix.
    """

    def __init__(self, config: LayerConfig, *, causal: bool, attend: Attend = fused_attention) -> None:
        super().__init__(config, attend)
        self.causal, self.heads = causal, (self.num_heads, self.kv_heads, self.kv_heads)
        self.normalise = {"hard": hard_weights, "linear": shares}.get(config.attention_kind, softmax)
        self.sizes = [config.attention_size, *config.keys_values_sizes]
        projected = self.sizes[1:] if config.projections == "shared-qk" else self.sizes
        self.project_in = build_projection(config, config.d_model, sum(projected))
        self.project_out = build_projection(config, config.values_size, config.d_model)
        self.relative = RelativeVectors(config) if config.positions == "relative" else None

    def forward(self, x: Tensor, relation: Relation, stored: list[KeysValues] | None = None) -> Tensor:
        """Attend from each position of x (B, T, D) to x: (B, T, D); ``stored`` receives keys and values."""
        queries, keys, values = map(split_heads, self._project(x, relation), self.heads)
        if stored is not None:
            stored.append(KeysValues(keys.contiguous(), values.contiguous()))
        contexts = self._attend(queries, keys, values, relation, self.causal)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output

    def step(
        self, x: Tensor, cache: KeyValueCache, relation: Relation, prefix: KeysValues | None = None
    ) -> Tensor:
        """Attend from the next token of each hypothesis, x (B, K, D), to it and all earlier ones.

        Args:
            x: the next tokens.
            cache: keys and values of the earlier tokens; those of x are appended.
            relation: of the next position to prefix, earlier tokens and itself; its mask is (H or 1, 1, keys)
                without a prefix, broadcasting to (B, H, 1, keys) with one.
            prefix: keys and values that precede the cached ones, shared by the hypotheses of a sentence.
        """
        query, key, value = self._project(x, relation)
        keys, values = cache.append(key, value)
        if prefix is not None:
            context = self._attend_to_prefix(query, keys, values, prefix, relation)
        else:  # hypotheses become batch rows
            queries = split_heads(query.reshape(-1, 1, query.size(-1)), self.num_heads)  # (B K, H, 1, E)
            keys, values = (
                split_heads(part.flatten(1, 2).transpose(0, 1), self.kv_heads) for part in (keys, values)
            )
            contexts = self._attend(queries, keys, values, relation)
            context = contexts.reshape(*query.shape[:2], -1)
        output: Tensor = self.project_out(context)
        return output

    def empty_cache(self, like: Tensor, sentences: int, beam: int, capacity: int) -> KeyValueCache:
        """Return an empty cache; arguments as of ``LayerStack.empty_state``."""
        return KeyValueCache(like, (sentences, beam, max(self.sizes[1:])), capacity)

    def _project(self, x: Tensor, relation: Relation) -> tuple[Tensor, ...]:
        """Return queries, keys and values of all heads; linear attention stores the features of keys."""
        query = key = value = self.project_in(x)
        if self.projections == "shared-qk":
            key, value = value.split(self.sizes[1:], -1)
            query = key
        elif self.projections == "separate":
            query, key, value = value.split(self.sizes, -1)
        query, key = self._prepare(query), self._prepare_keys(key)
        if relation.rotation is not None:
            query, key = (
                rotate(part.view(*part.shape[:-1], heads, -1), relation.rotation).flatten(-2)
                for part, heads in zip((query, key), self.heads, strict=False)
            )
        return query, key, value

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, relation: Relation, causal: bool = False
    ) -> Tensor:
        if self.relative is None or relation.bucket is None:
            return self.attend(queries, keys, values, relation.mask, causal, self._dropout)
        bias = mask_bias(self.relative.scores(queries, relation.bucket), relation.mask)
        weights = self.attend(queries, keys, None, bias, causal, self._dropout).to(values.dtype)
        return weights @ values + self.relative.contexts(weights, relation.bucket)

    def _attend_to_prefix(
        self, query: Tensor, keys: Tensor, values: Tensor, prefix: KeysValues, relation: Relation
    ) -> Tensor:
        """Attend from query (B, K, H E) to a prefix and to keys (length, B, K, H E); returns (B, K, H E)."""
        parts = zip((query, keys, values), self.heads, strict=True)
        query, *past = (part.view(*part.shape[:-1], heads, -1) for part, heads in parts)
        repeats = self.num_heads // self.kv_heads
        if repeats > 1:  # copies, as many as there are heads
            past = [part.repeat_interleave(repeats, dim=3) for part in past]
            prefix = KeysValues(*(part.repeat_interleave(repeats, dim=1) for part in prefix))
        mask = None if relation.mask is None else relation.mask.transpose(-3, -2)  # (B, 1, H, keys)
        if self.relative is not None and relation.bucket is not None:
            mask = mask_bias(self.relative.scores(query, relation.bucket), mask)
        context, weights = prefix_attention(query, KeysValues(*past), prefix, mask, self.normalise)
        if self.relative is not None and relation.bucket is not None:
            context = context + self.relative.contexts(weights, relation.bucket)
        return context.flatten(2)


class CrossAttention(MultiHead):
    """Queries attend to a memory, whose keys and values are one product, computed once per sentence.

    Concat(head_1, ..., head_H) W_O, where head_i = Attention(x W_Q_i, m W_K_i, m W_V_i) for encoder states m.
    W_Q is the matrix of ``project_query``; W_K and W_V together are that of ``project_memory``.
    """

    def __init__(self, config: LayerConfig, memory_size: int, attend: Attend = fused_attention) -> None:
        """Build the projections of memories (..., memory_size); a ValueError if they have none."""
        super().__init__(config, attend)
        if config.projections == "none" and memory_size != config.d_model:
            raise ValueError(
                f'projections "none" need encoder states of d_model ({config.d_model}), got {memory_size}'
            )
        self.sizes = config.keys_values_sizes
        self.project_query = build_projection(config, config.d_model, config.attention_size)
        self.project_memory = build_projection(config, memory_size, sum(self.sizes))
        self.project_out = build_projection(config, config.values_size, config.d_model)

    def remember(self, states: Tensor) -> KeysValues:
        """Project encoder states (B, S, memory_size) to keys and values (B, H, S, E)."""
        keys = values = self.project_memory(states)
        if self.projections != "none":
            keys, values = values.split(self.sizes, -1)
        keys = self._prepare_keys(keys)
        # Contiguous: copied once here, instead of in a matrix product at every decoding step.
        return KeysValues(*(split_heads(part, self.kv_heads).contiguous() for part in (keys, values)))

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Attend from x, (B, T, D) or (B, K, D), to the memory under a mask, broadcasting to (B, H, Q, S)."""
        queries = split_heads(self._prepare(self.project_query(x)), self.num_heads)
        contexts = self.attend(queries, memory.keys, memory.values, mask, False, self._dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output


def build_projection(config: LayerConfig, inputs: int, outputs: int) -> nn.Module:
    """Build a matrix around attention, the identity with ``projections`` "none"."""
    return nn.Identity() if config.projections == "none" else nn.Linear(inputs, outputs, bias=config.bias)


class GroupedAttention:
    """Attention of heads of queries that share keys and values, without copies of these."""

    def __init__(self, attend: Attend, groups: int) -> None:
        self.attend, self.groups = attend, groups

    def __call__(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        drop: float,
    ) -> Tensor:
        """Attend as ``attend`` does."""
        rows, heads, length, _ = queries.shape
        if causal:
            mask = restrict_to_past(mask, length, queries.device)
        if mask is not None:
            mask = self._fold(mask.expand(rows, heads, length, keys.size(2)))
        contexts = self.attend(self._fold(queries), keys, values, mask, False, drop)
        return contexts.reshape(rows, heads, length, -1)

    def _fold(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.groups, -1, x.size(3))


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split the last dimension into heads: (B, T, H E) to (B, H, T, E)."""
    return x.view(*x.shape[:-1], num_heads, -1).transpose(1, 2)


def normalise_heads(x: Tensor, num_heads: int) -> Tensor:
    """Divide the part (E,) of each head in x (..., H E) by its norm."""
    return normalize(x.view(*x.shape[:-1], num_heads, -1), dim=-1).flatten(-2)
