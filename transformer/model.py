"""The Transformer: layers, their stacks, encoder and decoder, and the two together.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attend, KeysValues, fused_attention, hard_attention, linear_attention, record_weights
from .config import IN_ATTENTION, LayerConfig, TransformerConfig
from .masks import (
    MaskPattern,
    attend_to_past,
    attend_to_source,
    attend_within_source,
    build_pattern,
    check_target,
    real_tokens,
)
from .multihead import CrossAttention, Features, Memory, SelfAttention, State
from .positions import AttentionPositions, Dropout, PositionalEmbedding, Relation

# Layers: sublayers, each with a residual connection and a norm; their replaceable parts.


RMS_EPSILON = 1e-6
"""Added to the mean square in RMSNorm, as in LLaMA (Touvron et al. 2023, code)."""


def build_norm(config: LayerConfig) -> nn.Module:
    """Build a norm over the last dimension: LayerNorm, RMSNorm, or the identity for ``norm`` "none".

    LayerNorm is (x - mean) / sqrt(variance + 1e-5) * g + b (Ba et al. 2016), RMSNorm x / sqrt(mean(x^2) +
    1e-6) * g (Zhang and Sennrich 2019, equation 4).
    """
    if config.norm == "none":
        return nn.Identity()
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.d_model, eps=RMS_EPSILON)
    return nn.LayerNorm(config.d_model, bias=config.bias)


class Residual(nn.Module):
    """norm(x + dropout(f(x))), Vaswani et al. 2017, section 5.4; or x + dropout(f(norm(x))), "pre".

    In the "pre" order the residual path from last to first layer passes no norm, and training needs no
    careful warm-up: Xiong et al. 2020, figure 1. With ``norm`` "none" it is x + dropout(f(x)).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre = config.norm != "post"
        self.norm = build_norm(config)
        self.dropout: nn.Module = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer to x (B, T, D)."""
        output: Tensor
        if self.pre:
            output = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Functions and classes that a model is built from, as in ``Transformer(..., Parts(attend=mine))``."""

    attend: Attend = fused_attention
    """Attention function of every attention; the config's ``attention_kind`` must then be "scaled"."""
    residual: Callable[[LayerConfig], nn.Module] = Residual
    """Class of the module around each sublayer; called as ``Residual`` is. To leave out every norm, also set
    the config's ``norm`` to "none" or "post", because "pre" adds a norm after the last layer."""

    def attention_function(self, config: LayerConfig) -> Attend:
        """Return the attention function for ``config.attention_kind``.

        A ValueError says that both config and ``attend`` replace the standard one, or that relative positions
        need the weights, which a replaced ``attend`` does not return.
        """
        if self.attend is not fused_attention:
            if config.attention_kind != "scaled":
                raise ValueError(
                    f'attention_kind "{config.attention_kind}" has no effect with Parts(attend=...): '
                    "choose one"
                )
            if config.positions == "relative":
                raise ValueError('positions "relative" need the standard attention, not Parts(attend=...)')
        return {"hard": hard_attention, "linear": linear_attention}.get(config.attention_kind, self.attend)


STANDARD = Parts()


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 at each position: Vaswani et al. 2017, equation 2.

    "swiglu" is W2 (swish(W x) * V x), swish(a) = a sigmoid(a): Shazeer 2020, equation 6; the matrix of
    ``widen`` is then W on V.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.is_gated = config.activation == "swiglu"
        width = 2 * config.ffn_size if self.is_gated else config.ffn_size
        self.widen = nn.Linear(config.d_model, width, bias=config.bias)
        self.narrow = nn.Linear(config.ffn_size, config.d_model, bias=config.bias)
        # ReLU in place would change a view, for which autograd copies the whole gradient.
        self.activation = _swiglu if self.is_gated else F.relu if config.activation == "relu" else F.gelu
        self.dropout = Dropout(config.activation_dropout) if config.activation_dropout else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        inner = self.activation(self.widen(x))
        if self.dropout is not None:
            inner = self.dropout(inner)
        output: Tensor = self.narrow(inner)
        return output


def _swiglu(x: Tensor) -> Tensor:
    gate, linear = x.chunk(2, dim=-1)
    return F.silu(gate) * linear


class Layer(nn.Module):
    """Self-attention, attention to the source in decoder layers, then the feed-forward sublayer.

    h = Residual(SelfAttention)(x), c = Residual(CrossAttention)(h, memory), y = Residual(FeedForward)(c):
    Vaswani et al. 2017, section 3.1. Without attention to the source c = h.
    """

    def __init__(
        self,
        config: LayerConfig,
        parts: Parts = STANDARD,
        *,
        causal: bool = False,
        memory_size: int | None = None,
    ) -> None:
        super().__init__()
        attend = parts.attention_function(config)
        self.attention = SelfAttention(config, causal=causal, attend=attend)
        self.cross = None if memory_size is None else CrossAttention(config, memory_size, attend)
        self.feed_forward: nn.Module | None = FeedForward(config)
        self.around_attention = parts.residual(config)
        self.around_cross: Any = None if memory_size is None else parts.residual(config)
        self.around_feed_forward = parts.residual(config)

    def forward(
        self,
        x: Tensor,
        attend_own: Callable[[Tensor], Tensor],
        memory: KeysValues | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer to all positions (B, T, D), or to the next token of each hypothesis (B, K, D).

        ``attend_own`` applies its self-attention; the mask is True where a target position may attend to
        ``memory``, broadcasting to (B, H, T or 1, S).
        """
        x = self.around_attention(x, attend_own)
        if self.cross is not None:
            x = self.around_cross(x, partial(self.cross, memory=memory, mask=mask))
        if self.feed_forward is not None:
            x = self.around_feed_forward(x, self.feed_forward)
        return x


# Stacks of layers, and models of them.


class LayerStack(nn.Module):
    """N layers over embedded tokens: base class of Encoder, Decoder, DecoderOnly and LanguageModel."""

    cross_pattern: MaskPattern | None = None

    def __init__(
        self,
        config: LayerConfig,
        layers: Iterable[nn.Module],
        embedding: nn.Embedding,
        mask: Literal["encoder_mask", "decoder_mask"] | None = None,
    ) -> None:
        super().__init__()
        self.table, self.place = embedding, PositionalEmbedding(config)
        self.order = None
        if config.positions in IN_ATTENTION:
            self.order = AttentionPositions(config, causal=mask == "decoder_mask")
        self.mask_pattern = None if mask is None else build_pattern(mask, getattr(config, mask))
        self.layers: Sequence[Any] = nn.ModuleList(layers)  # type: ignore[assignment]  # layers of one class
        # "post" layers end with a norm of their own.
        self.norm = build_norm(config) if config.norm == "pre" else nn.Identity()

    def embed(self, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Embed ids (B, T) at positions (T,), (B, T) or (B, 1), all below ``end``: (B, T, D)."""
        embedded: Tensor = self.place(self.table(ids), positions, end)
        return embedded

    def relate(self, queries: Tensor, keys: Tensor, end: int, mask: Tensor | None, like: Tensor) -> Relation:
        """Relate positions in self-attention; arguments as of ``AttentionPositions``."""
        return Relation(mask) if self.order is None else self.order(queries, keys, end, mask, like)

    def run(
        self,
        x: Tensor,
        relation: Relation,
        memory: Memory | None = None,
        cross_mask: Tensor | None = None,
        state: State | None = None,
    ) -> Tensor:
        """Apply all layers to all positions, x (B, T, D), or to each hypothesis' next token, x (B, K, D).

        Args:
            x: embedded tokens.
            relation: of their positions; of a single one see ``SelfAttention.step``.
            memory: keys and values of the source: of layers that attend to it, else a prefix of the sequence.
            cross_mask: True where they may attend to it, broadcasts to (B, H, T or 1, S).
            state: cached keys and values, to which those of the next tokens are appended.
        """
        sources = [None] * len(self.layers) if memory is None else memory.layers
        caches = [None] * len(self.layers) if state is None else state.layers
        for layer, source, cache in zip(self.layers, sources, caches, strict=True):
            attend = partial(layer.attention, relation=relation)
            if cache is not None:
                prefix = {"prefix": source} if source and layer.cross is None else {}
                attend = partial(layer.attention.step, cache=cache, relation=relation, **prefix)
            x = layer(x, attend, source, cross_mask)
        states: Tensor = self.norm(x)
        return states

    def run_causal(self, ids: Tensor, memory: Memory | None = None, state: State | None = None) -> Tensor:
        """Embed ids (B, T), or (B, K) with a state, and apply all layers: (B, T, D) or (B, K, D).

        Position t depends on tokens 0 to t, and on the memory of a source if there is one.
        """
        begin, end = (0, ids.size(1)) if state is None else (state.length, state.length + 1)
        keys = torch.arange(end, device=ids.device)
        positions = keys[begin:]
        x, mask = self.embed(ids, positions, end), attend_to_past(self.mask_pattern, positions, keys)
        relation = self.relate(positions, keys, end, mask, x)
        across = None
        if memory is not None:
            across = attend_to_source(self.cross_pattern, positions, memory.mask)
        return self.run(x, relation, memory, across, state)

    def empty_state(self, like: Tensor, sentences: int, beam: int, capacity: int) -> State:
        """Build the state before the first token, in the type and on the device of ``like``."""
        caches = (layer.attention.empty_cache(like, sentences, beam, capacity) for layer in self.layers)
        return State(tuple(caches))

    def record(self, prefix: str, run: Callable[[], object]) -> dict[str, Tensor]:
        """Return the weights of all attentions while ``run`` runs: "<prefix>.<layer>" and "cross.<layer>"."""
        attentions = {
            f"{name}.{number}": part
            for number, layer in enumerate(self.layers)
            for name, part in ((prefix, layer.attention), ("cross", layer.cross))
            if isinstance(part, SelfAttention | CrossAttention)
        }
        weights: dict[str, list[Tensor]] = {name: [] for name in attentions}
        usual = {name: part.attend for name, part in attentions.items()}
        try:
            for name, part in attentions.items():
                part.attend = record_weights(usual[name], weights[name])
            run()
        finally:
            for name, part in attentions.items():
                part.attend = usual[name]
        return {name: recorded for name, (recorded,) in weights.items()}


class Encoder(LayerStack):
    """N layers over embedded source tokens: Vaswani et al. 2017, figure 1, left."""

    def __init__(self, config: TransformerConfig, embedding: nn.Embedding, parts: Parts = STANDARD) -> None:
        layers = (Layer(config, parts) for _ in range(config.encoder_layers))
        super().__init__(config, layers, embedding, "encoder_mask")

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode src (B, S): the states (B, S, D), the mask as bool, and the mean of the real states (B, D).

        Args:
            src: ids.
            src_mask: True or 1 at real tokens, padding on the right, (B, S); None: all are real.
            src_lengths: the number of real tokens (B,), on the CPU, for a recurrence in place of
                self-attention.

        Raises:
            ValueError: ``src_mask`` is not such a mask, or a token has nothing to attend to.
        """
        src_mask = real_tokens(src, src_mask)
        positions, end = torch.arange(src.size(1), device=src.device), src.size(1)
        mask, x = attend_within_source(self.mask_pattern, src_mask), self.embed(src, positions, end)
        relation = self.relate(positions, positions, end, mask, x)._replace(lengths=src_lengths)
        states = self.run(x, relation)
        real = src_mask.unsqueeze(-1).to(states.dtype)
        return states, src_mask, (states * real).sum(1) / real.sum(1)

    def attention(self, src: Tensor, src_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the weights "encoder.<layer>", (B, H, S, S) each; arguments as for ``forward``."""
        return self.record("encoder", lambda: self(src, src_mask))


class Decoder(LayerStack):
    """N layers over embedded target tokens and a memory: Vaswani et al. 2017, figure 1, right."""

    def __init__(
        self,
        config: TransformerConfig,
        embedding: nn.Embedding,
        memory_size: int | None = None,
        parts: Parts = STANDARD,
    ) -> None:
        size = memory_size or config.d_model
        layers = (Layer(config, parts, causal=True, memory_size=size) for _ in range(config.decoder_layers))
        super().__init__(config, layers, embedding, "decoder_mask")
        self.cross_pattern = build_pattern("cross_mask", config.cross_mask)

    def remember(self, states: Tensor, mask: Tensor) -> Memory:
        """Project encoder states (B, S, memory_size) to the keys and values of every layer."""
        layers: list[Any] = [layer.cross.remember(states) if layer.cross else () for layer in self.layers]
        return Memory(tuple(layers), mask[:, None, None, :])

    def forward(self, tgt_in: Tensor, memory: Memory) -> Tensor:
        """Run all target positions tgt_in (B, T) at once: (B, T, D); position t depends on tokens 0 to t."""
        return self.run_causal(tgt_in, memory)

    def attention(self, tgt_in: Tensor, memory: Memory) -> dict[str, Tensor]:
        """Compute the weights "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S)."""
        return self.record("decoder", lambda: self(tgt_in, memory))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token; arguments as for ``Transformer``."""
        return self.empty_state(memory.layers[-1].keys, memory.mask.size(0), beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Run the next position of tokens (B, K): the states (B, K, D), and the state, changed in place."""
        return self.run_causal(tokens, memory, state), state


def build_embeddings(
    config: LayerConfig, src_vocabulary: int, tgt_vocabulary: int
) -> tuple[nn.Embedding, nn.Embedding]:
    """Build the source and the target embedding, (V, D) each; one module if ``config.tie`` is "all".

    A ValueError says that they are tied but the vocabularies differ in size.
    """
    if config.tie == "all" and src_vocabulary != tgt_vocabulary:
        raise ValueError(
            f"tie='all' needs one joint vocabulary, got {src_vocabulary} source and {tgt_vocabulary} "
            "target entries: make it joint or choose tie='output'"
        )
    tgt_embedding = nn.Embedding(tgt_vocabulary, config.d_model)
    if config.tie == "all":
        return tgt_embedding, tgt_embedding
    return nn.Embedding(src_vocabulary, config.d_model), tgt_embedding


def build_output_layer(config: LayerConfig, embedding: nn.Embedding) -> nn.Linear:
    """Build the layer from states (..., D) to logits (..., V): Press and Wolf 2017 where it is tied."""
    output = nn.Linear(config.d_model, embedding.num_embeddings, bias=False)
    if config.tie != "none":
        output.weight = embedding.weight
    return output


def initialise(model: nn.Module, output: nn.Linear | None = None) -> None:
    """Draw fresh weights for all linear layers and embeddings of a model, in place.

    Matrices are uniform as in Glorot and Bengio 2010, equation 16; the merged projections of queries, keys
    and values count as one matrix. Biases are 0. Embeddings, the output layer and the biases of distances
    ("t5", as in its code) are normal with standard deviation D^-0.5.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not output:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():
        if isinstance(module, AttentionPositions) and module.bias is not None:
            nn.init.normal_(module.bias.weight, std=module.width**-0.5)
    if output is not None:
        nn.init.normal_(output.weight, std=output.in_features**-0.5)


class Transformer(nn.Module):
    """The encoder-decoder of "Attention is all you need", Vaswani et al. 2017.

    p(y | x) = prod_t softmax(W decoder(y_0, ..., y_t-1, encoder(x)))_y_t, where y_0 begins the sentence.
    See https://arxiv.org/abs/1706.03762.

    Example::

        model = Transformer(TransformerConfig(), src_vocabulary=8000, tgt_vocabulary=8000)
        logits = model(src, src_mask, tgt_in)  # (B, T, 8000)
    """

    def __init__(
        self, config: TransformerConfig, src_vocabulary: int, tgt_vocabulary: int, parts: Parts = STANDARD
    ) -> None:
        """Build the model with fresh weights; a ValueError if tied vocabularies differ in size."""
        super().__init__()
        self.config = config
        src_embedding, tgt_embedding = build_embeddings(config, src_vocabulary, tgt_vocabulary)
        self.encoder = Encoder(config, src_embedding, parts)
        self.decoder = Decoder(config, tgt_embedding, parts=parts)
        self.output = build_output_layer(config, tgt_embedding)
        initialise(self, self.output)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position; arguments as for ``features``."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions.

        Args:
            src: source ids, (B, S).
            src_mask: True or 1 at real source tokens, padding on the right, (B, S); None: all are real.
            tgt_in: target ids, (B, T), beginning with the begin-of-sentence id.
            src_lengths: real source tokens per sentence (B,), on the CPU, which the mask tells too.

        Raises:
            ValueError: ``src_mask`` is not such a mask.
        """
        memory = self.encode(src, src_mask, src_lengths)
        check_target(src, tgt_in)
        return Features(self.decoder(tgt_in, memory))

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of every layer by name; arguments as for ``features``.

        "encoder.<layer>" is (B, H, S, S), "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S);
        row t of the latter two serves to predict the token after tgt_in[t].
        """
        encoder_weights = self.encoder.attention(src, src_mask)
        check_target(src, tgt_in)
        return encoder_weights | self.decoder.attention(tgt_in, self.encode(src, src_mask))

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> Memory:
        """Encode src (B, S) once per sentence; src_mask (B, S) marks real tokens."""
        states, mask, *_ = self.encoder(src, src_mask, src_lengths)
        return self.decoder.remember(states, mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first of at most ``capacity`` tokens of ``beam`` hypotheses."""
        return self.decoder.init_state(memory, beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode tokens (B, K): the next logits (B, K, V), and the state, changed without gradients."""
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state
