"""The Transformer: encoder, decoder and the model made of both.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor, nn

from .attention import Attend, KeysValues, fused_attention, plain_attention
from .cache import KeyValueCache
from .config import TransformerConfig
from .layers import DecoderLayer, EncoderLayer
from .positions import PositionedEmbedding


class Features(NamedTuple):
    """What the loss is computed from."""

    hidden: Tensor
    """The input of ``output``, (B, T, D)."""
    choice_logp: None = None
    """No position is drawn here."""
    value: None = None
    """Nor is there a baseline."""


class Memory(NamedTuple):
    """What the decoder knows of the sources, one row a sentence."""

    layers: tuple[KeysValues, ...]
    """Keys and values of each decoder layer's cross-attention."""
    mask: Tensor
    """True = may be attended, (B, 1, 1, S)."""


class State(NamedTuple):
    """What the decoder knows of the tokens written so far."""

    layers: tuple[KeyValueCache, ...]
    """Keys and values of each decoder layer's self-attention."""


class Encoder(nn.Module):
    """N layers over embedded source tokens: Vaswani et al. 2017, figure 1, left."""

    def __init__(self, config: TransformerConfig, table: nn.Embedding) -> None:
        super().__init__()
        self.embed = PositionedEmbedding(table, config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = final_norm(config)

    def forward(
        self, src: Tensor, src_mask: Tensor, attend: Attend = fused_attention
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read src (B, S) under src_mask (B, S).

        Returns:
            The states (B, S, D), the mask as given, and the mean of each sentence's real states (B, D).
        """
        mask = src_mask[:, None, None, :]
        x = self.embed(src, src.size(1))
        for layer in self.layers:
            x = layer(x, mask, attend)
        states: Tensor = self.norm(x)
        real = src_mask.unsqueeze(-1).to(states.dtype)
        return states, src_mask, (states * real).sum(1) / real.sum(1)


class Decoder(nn.Module):
    """N layers over embedded target tokens and a memory: Vaswani et al. 2017, figure 1, right."""

    def __init__(self, config: TransformerConfig, table: nn.Embedding) -> None:
        super().__init__()
        self.embed = PositionedEmbedding(table, config.dropout)
        layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layers = cast("Sequence[DecoderLayer]", layers)  # a ModuleList does not say of what
        self.norm = final_norm(config)
        self.d_model = config.d_model

    def remember(self, states: Tensor, mask: Tensor) -> Memory:
        """Project encoder states (B, S, D) under mask (B, S) for every layer, once a sentence."""
        return Memory(tuple(layer.cross.remember(states) for layer in self.layers), mask[:, None, None, :])

    def forward(self, tgt_in: Tensor, memory: Memory, attend: Attend = fused_attention) -> Tensor:
        """Run the whole target tgt_in (B, T); returns (B, T, D). Position t sees tokens 0 to t."""
        x = self.embed(tgt_in, tgt_in.size(1))
        for layer, source in zip(self.layers, memory.layers, strict=True):
            x = layer(x, source, memory.mask, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Make the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        shape = (memory.mask.size(0), beam, self.d_model)
        return State(tuple(KeyValueCache(source.keys, shape, capacity) for source in memory.layers))

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns (B, K, D) and the state, which is the one given, changed in place."""
        x = self.embed(tokens, 1, start=state.layers[0].length)
        for layer, source, cache in zip(self.layers, memory.layers, state.layers, strict=True):
            x = layer.step(x, source, memory.mask, cache)
        return self.norm(x), state


class Transformer(nn.Module):
    """The encoder-decoder of "Attention is all you need", Vaswani et al. 2017."""

    def __init__(self, config: TransformerConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__()
        if config.tie == "all" and src_vocabulary != tgt_vocabulary:
            raise ValueError(
                f"tie='all' needs one joint vocabulary, got {src_vocabulary} source and {tgt_vocabulary} "
                "target entries: make it joint or choose tie='output'"
            )
        self.config = config
        tgt_table = nn.Embedding(tgt_vocabulary, config.d_model)
        src_table = tgt_table if config.tie == "all" else nn.Embedding(src_vocabulary, config.d_model)
        self.encoder = Encoder(config, src_table)
        self.decoder = Decoder(config, tgt_table)
        self.output = nn.Linear(config.d_model, tgt_vocabulary, bias=False)
        if config.tie != "none":
            self.output.weight = tgt_table.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrices as Glorot does (merged ones as one), embeddings and output with deviation D^-0.5."""
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.output:
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """Give the logits (B, T, V) of the token after each of tgt_in (B, T); src and src_mask are (B, S)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once; ``hidden`` (B, T, D) is the input of ``output``."""
        return self._features(src, src_mask, tgt_in, fused_attention)

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Give the attention weights of every layer.

        Returns:
            "encoder.<layer>" (B, H, S, S), "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S);
            row t of the latter two holds the weights used to predict the token after tgt_in[t].
        """
        found: list[Tensor] = []

        def attend(
            queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
        ) -> Tensor:
            contexts, weights = plain_attention(queries, keys, values, mask, causal, dropout)
            found.append(weights)
            return contexts

        self._features(src, src_mask, tgt_in, attend)
        names = [f"encoder.{n}" for n in range(self.config.encoder_layers)]
        for n in range(self.config.decoder_layers):
            names += [f"decoder.{n}", f"cross.{n}"]
        return dict(zip(names, found, strict=True))

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        """Read src (B, S) under src_mask (B, S) once."""
        states, mask, _ = self.encoder(src, src_mask)
        return self.decoder.remember(states, mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Make the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        return self.decoder.init_state(memory, beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state. ``state`` is dead afterwards."""
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state

    def _features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, attend: Attend) -> Features:
        states, mask, _ = self.encoder(src, src_mask, attend)
        return Features(self.decoder(tgt_in, self.decoder.remember(states, mask), attend))


def final_norm(config: TransformerConfig) -> nn.Module:
    """Normalise the sum that pre-norm layers leave as it is; post-norm layers have done so."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
