"""Translation by a decoder alone: source and target are one sequence.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

import torch
from torch import Tensor

from .attention import Attend, KeysValues, fused_attention, record_weights
from .config import DecoderOnlyConfig
from .layers import STANDARD, EncoderLayer, Parts
from .masks import SequencePatterns, attend_within_source, check_target, real_tokens
from .model import LayerStack, build_embeddings, build_output_layer, initialise
from .multihead import Features, Memory, State, empty_state
from .positions import place_below


class DecoderOnly(LayerStack):
    """One stack over [source; target] under a prefix mask, for translation.

    p(y | x) = prod_t softmax(W stack([x; y_0, ..., y_t-1]))_y_t. Source positions attend to the whole source,
    target positions to the source and to the target up to themselves: the prefix language model of Raffel et
    al. 2020 (section 3.2.1), used for translation by Wang et al. 2021. Target positions are numbered from the
    end of the sentence's own source. Source and target have separate embeddings unless all are tied; nothing
    else distinguishes a source token from a target token.
    """

    def __init__(
        self, config: DecoderOnlyConfig, src_vocabulary: int, tgt_vocabulary: int, parts: Parts = STANDARD
    ) -> None:
        """Build the model with fresh weights.

        Args:
            config: sizes and options.
            src_vocabulary: size of the source vocabulary.
            tgt_vocabulary: size of the target vocabulary.
            parts: position encoding and residual connection; the attention function must be the standard one.

        Raises:
            ValueError: ``parts.attend`` is replaced, or all embeddings are tied but the vocabularies differ
                in size.
        """
        if parts.attend is not fused_attention:
            raise ValueError(
                "attend cannot be replaced in DecoderOnly: a step attends to the source and to earlier "
                "target tokens by prefix_attention, which has a normaliser of its own"
            )
        src_embedding, tgt_embedding = build_embeddings(config, src_vocabulary, tgt_vocabulary)
        layers = (EncoderLayer(config, parts) for _ in range(config.num_layers))
        super().__init__(config, layers, tgt_embedding, parts)
        self.config = config
        self.patterns = SequencePatterns(
            *(parts.mask_pattern(name, config) for name in ("encoder_mask", "decoder_mask", "cross_mask"))
        )
        self.src_table = src_embedding
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
        return Features(self._states(src, src_mask, tgt_in)[:, src.size(1) :])

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of the target positions; arguments as for ``forward``.

        Returns:
            The weights by name: "cross.<layer>" (B, H, T, S) to the source and "decoder.<layer>" (B, H, T, T)
            to the target. Both are parts of one distribution and together sum to 1.
        """
        recorded: list[Tensor] = []
        self._states(src, src_mask, tgt_in, record_weights(self.attend, recorded))
        src_len, weights = src.size(1), {}
        for layer, layer_weights in enumerate(recorded):
            from_target = layer_weights[:, :, src_len:]  # (B, H, T, S + T)
            weights[f"cross.{layer}"] = from_target[..., :src_len]
            weights[f"decoder.{layer}"] = from_target[..., src_len:]
        return weights

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Compute the keys and values of src (B, S) once per sentence; src_mask (B, S) marks real tokens."""
        layers: list[KeysValues] = []
        src_mask = real_tokens(src, src_mask)
        positions, mask = torch.arange(src.size(1), device=src.device), src_mask[:, None, None, :]
        visible = attend_within_source(self.patterns.encoder, src_mask)
        self.run(self._embed_source(src), positions, src.size(1), visible, stored=layers)
        return Memory(tuple(layers), mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            memory: result of ``encode``.
            beam: number of hypotheses per sentence, K.
            capacity: maximum number of tokens per hypothesis.
        """
        shape = (memory.mask.size(0), beam, self.cache_size)
        return empty_state(memory.layers[0].keys, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode one position, without gradients: the state is written in place. ``forward`` has gradients.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens; it must not be used afterwards.
            memory: result of ``encode``.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """
        positions = memory.mask.sum(-1).flatten(1) + state.length  # (B, 1)
        end = memory.mask.size(-1) + state.length + 1
        x = self.embed(tokens, positions, end)
        mask, distances = self.patterns.step_mask(state.length, memory.mask), None
        if self.order is not None:
            source = torch.arange(memory.mask.size(-1), device=tokens.device).expand(len(tokens), -1)
            earlier = positions + torch.arange(-state.length, 1, device=tokens.device)
            mask, distances = self.order(positions, torch.cat((source, earlier), dim=1), end, mask, x)
        return self.output(self.advance(x, state, memory, mask, distances)), state

    def _embed_source(self, src: Tensor) -> Tensor:
        """Embed src (B, S) and add positions: (B, S, D)."""
        positions = torch.arange(src.size(1), device=src.device)
        return place_below(src.size(1), self.place, self.src_table(src), positions)

    def _states(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, attend: Attend | None = None
    ) -> Tensor:
        """Compute the states of source and target, (B, S + T, D)."""
        src_mask = real_tokens(src, src_mask)
        check_target(src, tgt_in)
        tgt_len = tgt_in.size(1)
        positions = src_mask.sum(1, keepdim=True) + torch.arange(tgt_len, device=src.device)  # (B, T)
        end = src.size(1) + tgt_len
        target = self.embed(tgt_in, positions, end)
        sequence = torch.cat((self._embed_source(src), target), dim=1)
        mask = self.patterns.sequence_mask(src_mask, tgt_len)
        if self.order is not None:
            source = torch.arange(src.size(1), device=src.device).expand(len(src), -1)
            positions = torch.cat((source, positions), dim=1)
        return self.run(sequence, positions, end, mask, attend)
