"""The Transformer: stacks of layers, encoder and decoder, and the two together.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .attention import Attend, KeysValues, record_weights
from .config import LayerConfig, TransformerConfig
from .layers import STANDARD, DecoderLayer, EncoderLayer, Parts, final_norm
from .masks import attend_to_past, attend_to_source, attend_within_source, check_target, real_tokens
from .multihead import Features, Memory, SelfAttention, State, empty_state
from .positions import Distances, attention_positions, place_below


class LayerStack(nn.Module):
    """N layers over embedded tokens: base class of Encoder, Decoder, DecoderOnly and LanguageModel."""

    def __init__(
        self,
        config: LayerConfig,
        layers: Iterable[nn.Module],
        embedding: nn.Embedding,
        parts: Parts,
        mask: str | None = None,
    ) -> None:
        """Build the stack.

        Args:
            config: gives sizes and options.
            layers: the layers, built as they are taken.
            embedding: the token embedding.
            parts: position encoding, attention function and mask.
            mask: the setting of its own mask, "encoder_mask" or "decoder_mask"; None has none.
        """
        super().__init__()
        self.table, self.place = embedding, parts.positional_embedding(config)
        self.attend = parts.attention_function(config)
        self.order = attention_positions(config)
        self.mask_pattern = None if mask is None else parts.mask_pattern(mask, config)
        self.layers: Sequence[Any] = nn.ModuleList(layers)  # type: ignore[assignment]  # of layers of one class
        self.norm = final_norm(config)
        self.cache_size = max(config.attention_size, config.values_size)

    def embed(self, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Embed ids (B, T) at positions (T,), (B, T) or (B, 1), all below ``end``: (B, T, D)."""
        return place_below(end, self.place, self.table(ids), positions)

    def relate(
        self, queries: Tensor, keys: Tensor, end: int, mask: Tensor | None, like: Tensor
    ) -> tuple[Tensor | None, Distances | None]:
        """Return mask or bias, and distances, of self-attention; arguments as of ``AttentionPositions``."""
        return (mask, None) if self.order is None else self.order(queries, keys, end, mask, like)

    def embed_next(
        self, tokens: Tensor, state: State
    ) -> tuple[Tensor, Tensor, Tensor | None, Distances | None]:
        """Embed the next token of each hypothesis, (B, K); return also its position, mask and distances."""
        end = state.length + 1
        position = torch.arange(state.length, end, device=tokens.device)
        x, mask, distances = self.embed(tokens, position, end), None, None
        if self.order is not None or self.mask_pattern is not None:
            keys = torch.arange(end, device=tokens.device)
            mask = attend_to_past(self.mask_pattern, position, keys)
            mask, distances = self.relate(position, keys, end, mask, x)
        return x, position, mask, distances

    def run(
        self,
        x: Tensor,
        positions: Tensor,
        end: int,
        mask: Tensor | None,
        attend: Attend | None = None,
        stored: list[KeysValues] | None = None,
    ) -> Tensor:
        """Apply all layers of self-attention to all positions.

        Args:
            x: embedded tokens, (B, T, D).
            positions: their positions, (T,) or (B, T), of which only "rotary", "relative" and "alibi" need to
                know here.
            end: a number above all positions.
            mask: bool, broadcasts to (B, H, T, T); None allows all.
            attend: used in this call instead of ``parts.attend``.
            stored: receives the keys and values of each layer.

        Returns:
            The states, (B, T, D).
        """
        mask, distances = self.relate(positions, positions, end, mask, x)
        for layer in self.layers:
            x = layer(x, lambda attention, h: attention(h, mask, attend, distances, stored))
        states: Tensor = self.norm(x)
        return states

    def advance(
        self,
        x: Tensor,
        state: State,
        memory: Memory | None = None,
        mask: Tensor | None = None,
        distances: Distances | None = None,
    ) -> Tensor:
        """Apply all layers of self-attention to the next token of each hypothesis.

        Args:
            x: embedded tokens, (B, K, D).
            state: cached keys and values, to which those of x are appended.
            memory: keys and values of a prefix, if there is one.
            mask: see ``SelfAttention.step``.
            distances: of the positions, for rotary and relative positions.

        Returns:
            The states, (B, K, D).
        """
        prefixes, prefix_mask = (memory.layers, memory.mask) if memory else ([None] * len(self.layers), None)
        for layer, cache, prefix in zip(self.layers, state.layers, prefixes, strict=True):

            def step(attention: SelfAttention, h: Tensor, cache: Any = cache, prefix: Any = prefix) -> Tensor:
                return attention.step(h, cache, prefix, prefix_mask, mask, distances)

            x = layer.forward(x, step)
        states: Tensor = self.norm(x)
        return states


class Encoder(LayerStack):
    """N layers over embedded source tokens: Vaswani et al. 2017, figure 1, left."""

    def __init__(self, config: TransformerConfig, embedding: nn.Embedding, parts: Parts = STANDARD) -> None:
        layers = (EncoderLayer(config, parts) for _ in range(config.encoder_layers))
        super().__init__(config, layers, embedding, parts, "encoder_mask")

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, *, attend: Attend | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode the sources.

        Args:
            src: ids, (B, S).
            src_mask: True or 1 at real tokens, padding on the right, (B, S); None: all are real.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states (B, S, D), the mask as bool, and the mean of each sentence's real states (B, D).

        Raises:
            ValueError: ``src_mask`` is not such a mask, or a token has nothing to attend to.
        """
        src_mask = real_tokens(src, src_mask)
        positions, end = torch.arange(src.size(1), device=src.device), src.size(1)
        mask = attend_within_source(self.mask_pattern, src_mask)
        states = self.run(self.embed(src, positions, end), positions, end, mask, attend)
        real = src_mask.unsqueeze(-1).to(states.dtype)
        return states, src_mask, (states * real).sum(1) / real.sum(1)

    def attention(self, src: Tensor, src_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name, "encoder.<layer>", (B, H, S, S) each.
        """
        weights: list[Tensor] = []
        self(src, src_mask, attend=record_weights(self.attend, weights))
        return {f"encoder.{layer}": layer_weights for layer, layer_weights in enumerate(weights)}


class Decoder(LayerStack):
    """N layers over embedded target tokens and a memory: Vaswani et al. 2017, figure 1, right."""

    def __init__(
        self,
        config: TransformerConfig,
        embedding: nn.Embedding,
        memory_size: int | None = None,
        parts: Parts = STANDARD,
    ) -> None:
        """Build the layers.

        Args:
            config: gives sizes and options.
            embedding: the target embedding.
            memory_size: width of the encoder's states; None means ``d_model``.
            parts: position encoding, attention function and residual connection.
        """
        layers = (DecoderLayer(config, memory_size, parts) for _ in range(config.decoder_layers))
        super().__init__(config, layers, embedding, parts, "decoder_mask")
        self.cross_pattern = parts.mask_pattern("cross_mask", config)

    def remember(self, states: Tensor, mask: Tensor) -> Memory:
        """Project encoder states to the keys and values of every layer, once per sentence.

        Args:
            states: encoder states, (B, S, memory_size).
            mask: True at real source tokens, (B, S).

        Returns:
            The memory for ``forward`` and ``step``.
        """
        return Memory(tuple(layer.cross.remember(states) for layer in self.layers), mask[:, None, None, :])

    def forward(self, tgt_in: Tensor, memory: Memory, *, attend: Attend | None = None) -> Tensor:
        """Run all target positions at once; position t depends on tokens 0 to t.

        Args:
            tgt_in: ids, (B, T).
            memory: result of ``remember``.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states, (B, T, D).
        """
        positions, end = torch.arange(tgt_in.size(1), device=tgt_in.device), tgt_in.size(1)
        x = self.embed(tgt_in, positions, end)
        own_mask = attend_to_past(self.mask_pattern, positions, positions)
        own_mask, distances = self.relate(positions, positions, end, own_mask, x)
        mask = attend_to_source(self.cross_pattern, positions, memory.mask)
        for layer, source in zip(self.layers, memory.layers, strict=True):
            x = layer(x, lambda attention, h: attention(h, own_mask, attend, distances), source, mask, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def attention(self, tgt_in: Tensor, memory: Memory) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name, "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S).
        """
        weights: list[Tensor] = []
        self(tgt_in, memory, attend=record_weights(self.attend, weights))
        names = [f"{kind}.{layer}" for layer in range(len(self.layers)) for kind in ("decoder", "cross")]
        return dict(zip(names, weights, strict=True))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            memory: result of ``remember``.
            beam: number of hypotheses per sentence, K.
            capacity: maximum number of tokens per hypothesis.
        """
        shape = (memory.mask.size(0), beam, self.cache_size)
        return empty_state(memory.layers[0].keys, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Run the next target position.

        Args:
            tokens: the next token of each hypothesis, (B, K).
            state: the state before these tokens; it is changed in place.
            memory: result of ``remember``.

        Returns:
            The states of the new position (B, K, D), and the same state object.
        """
        x, position, own_mask, distances = self.embed_next(tokens, state)
        mask = attend_to_source(self.cross_pattern, position, memory.mask)
        for layer, source, cache in zip(self.layers, memory.layers, state.layers, strict=True):

            def step(attention: SelfAttention, h: Tensor, cache: Any = cache) -> Tensor:
                return attention.step(h, cache, mask=own_mask, distances=distances)

            x = layer.forward(x, step, source, mask)
        return self.norm(x), state


def build_embeddings(
    config: LayerConfig, src_vocabulary: int, tgt_vocabulary: int
) -> tuple[nn.Embedding, nn.Embedding]:
    """Build the source and the target embedding, (V, D) each.

    Args:
        config: gives the width and the weight tying.
        src_vocabulary: size of the source vocabulary.
        tgt_vocabulary: size of the target vocabulary.

    Returns:
        Source and target embedding: the same module if ``config.tie`` is "all".

    Raises:
        ValueError: the embeddings are tied but the vocabularies differ in size.
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
    """Build the layer from states (..., D) to logits (..., V): Press and Wolf 2017 where it is tied.

    Args:
        config: gives the width and the weight tying.
        embedding: the target embedding; its matrix is the layer's unless ``config.tie`` is "none".

    Returns:
        A linear layer without bias.
    """
    output = nn.Linear(config.d_model, embedding.num_embeddings, bias=False)
    if config.tie != "none":
        output.weight = embedding.weight
    return output


def initialise(model: nn.Module, output: nn.Linear | None = None) -> None:
    """Draw fresh weights for all linear layers and embeddings of a model, in place.

    Matrices are uniform as in Glorot and Bengio 2010, equation 16; the merged projections of queries, keys
    and values count as one matrix. Biases are 0. Embeddings and the output layer are normal with standard
    deviation D^-0.5.

    Args:
        model: the model; random numbers are drawn in the order of its modules.
        output: its output layer, if it has one.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not output:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
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
        """Build the model with fresh weights.

        Args:
            config: sizes and options.
            src_vocabulary: size of the source vocabulary.
            tgt_vocabulary: size of the target vocabulary.
            parts: position encoding, attention function and residual connection.

        Raises:
            ValueError: all embeddings are tied but the vocabularies differ in size.
        """
        super().__init__()
        self.config = config
        src_embedding, tgt_embedding = build_embeddings(config, src_vocabulary, tgt_vocabulary)
        self.encoder = Encoder(config, src_embedding, parts)
        self.decoder = Decoder(config, tgt_embedding, parts=parts)
        self.output = build_output_layer(config, tgt_embedding)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights; see ``transformer.model.initialise``."""
        initialise(self, self.output)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits of the token after each target position.

        Args:
            src: source ids, (B, S).
            src_mask: True or 1 at real source tokens, padding on the right, (B, S); None: all are real.
            tgt_in: target ids, (B, T), beginning with the begin-of-sentence id.

        Returns:
            The logits, (B, T, V).

        Raises:
            ValueError: ``src_mask`` is not such a mask.
        """
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions; the lengths (B,) are in the mask."""
        memory = self.encode(src, src_mask)
        check_target(src, tgt_in)
        return Features(self.decoder(tgt_in, memory))

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name: "encoder.<layer>" (B, H, S, S), "decoder.<layer>" (B, H, T, T) and
            "cross.<layer>" (B, H, T, S). Row t of the latter two serves to predict the token after tgt_in[t].
        """
        encoder_weights = self.encoder.attention(src, src_mask)
        check_target(src, tgt_in)
        return encoder_weights | self.decoder.attention(tgt_in, self.encode(src, src_mask))

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Encode src (B, S) once per sentence; src_mask (B, S) marks real tokens."""
        states, mask, _ = self.encoder(src, src_mask)
        return self.decoder.remember(states, mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            memory: result of ``encode``.
            beam: number of hypotheses per sentence, K.
            capacity: maximum number of tokens per hypothesis.
        """
        return self.decoder.init_state(memory, beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode one position, without gradients: the state is written in place. ``forward`` has gradients.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens; it must not be used afterwards.
            memory: result of ``encode``.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state
