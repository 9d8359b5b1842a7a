"""Decoders alone: for translation, with source and target as one sequence, and language models.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from functools import partial

import torch
from torch import Tensor, nn

from .attention import KeysValues
from .config import DecoderOnlyConfig
from .masks import SequencePatterns, attend_within_source, build_pattern, check_target, real_tokens
from .model import Layer, LayerStack, build_embeddings, build_output_layer, initialise
from .multihead import Features, Memory, State
from .positions import Relation


class DecoderOnly(LayerStack):
    """One stack over [source; target] under a prefix mask, for translation.

    p(y | x) = prod_t softmax(W stack([x; y_0, ..., y_t-1]))_y_t. Source positions attend to the whole source,
    target positions to the source and to the target up to themselves: the prefix language model of Raffel et
    al. 2020 (section 3.2.1), used for translation by Wang et al. 2021. Target positions are numbered from the
    end of the sentence's own source. Source and target have separate embeddings unless all are tied; nothing
    else distinguishes a source token from a target token.
    """

    def __init__(self, config: DecoderOnlyConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        """Build the model with fresh weights; a ValueError if tied vocabularies differ in size."""
        src_embedding, tgt_embedding = build_embeddings(config, src_vocabulary, tgt_vocabulary)
        super().__init__(config, (Layer(config) for _ in range(config.num_layers)), tgt_embedding)
        self.config, masks = config, ("encoder_mask", "decoder_mask", "cross_mask")
        self.patterns = SequencePatterns(*(build_pattern(name, getattr(config, name)) for name in masks))
        self.src_table = src_embedding
        self.output = build_output_layer(config, tgt_embedding)
        initialise(self, self.output)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position; arguments as for ``features``."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions; arguments as for ``Transformer``."""
        return Features(self._states(src, src_mask, tgt_in)[:, src.size(1) :])

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights of the target positions, which together sum to 1, by name.

        "cross.<layer>" (B, H, T, S) are those of the source, "decoder.<layer>" (B, H, T, T) those of the
        target. Arguments are as for ``features``.
        """
        of_both = self.record("decoder", lambda: self._states(src, src_mask, tgt_in))
        src_len, weights = src.size(1), {}
        for name, layer_weights in of_both.items():
            from_target = layer_weights[:, :, src_len:]  # (B, H, T, S + T)
            weights[name.replace("decoder", "cross")] = from_target[..., :src_len]
            weights[name] = from_target[..., src_len:]
        return weights

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Compute the keys and values of src (B, S) once per sentence; src_mask (B, S) marks real tokens."""
        layers: list[KeysValues] = []
        src_mask = real_tokens(src, src_mask)
        visible = attend_within_source(self.patterns.encoder, src_mask)
        x, positions = self._embed_source(src)
        relation = self.relate(positions, positions, src.size(1), visible, x)
        for layer in self.layers:
            x = layer(x, partial(layer.attention, relation=relation, stored=layers))
        return Memory(tuple(layers), src_mask[:, None, None, :])

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token; arguments as for ``Transformer``."""
        return self.empty_state(memory.layers[0].keys, memory.mask.size(0), beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode tokens (B, K): the next logits (B, K, V), and the state, changed without gradients."""
        positions = memory.mask.sum(-1).flatten(1) + state.length  # (B, 1)
        end = memory.mask.size(-1) + state.length + 1
        x = self.embed(tokens, positions, end)
        relation = Relation(self.patterns.step_mask(state.length, memory.mask))
        if self.order is not None:
            source = torch.arange(memory.mask.size(-1), device=tokens.device).expand(len(tokens), -1)
            earlier = positions + torch.arange(-state.length, 1, device=tokens.device)
            keys = torch.cat((source, earlier), dim=1)
            relation = self.order(positions, keys, end, relation.mask, x)
        return self.output(self.run(x, relation, memory, state=state)), state

    def _embed_source(self, src: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(src.size(1), device=src.device)
        return self.place(self.src_table(src), positions, src.size(1)), positions

    def _states(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        src_mask = real_tokens(src, src_mask)
        check_target(src, tgt_in)
        tgt_len = tgt_in.size(1)
        positions = src_mask.sum(1, keepdim=True) + torch.arange(tgt_len, device=src.device)  # (B, T)
        end = src.size(1) + tgt_len
        target, (source, src_positions) = self.embed(tgt_in, positions, end), self._embed_source(src)
        sequence = torch.cat((source, target), dim=1)
        mask = self.patterns.sequence_mask(src_mask, tgt_len)
        positions = torch.cat((src_positions.expand(len(src), -1), positions), dim=1)
        return self.run(sequence, self.relate(positions, positions, end, mask, sequence))


class LanguageModel(LayerStack):
    """p(x) = prod_t p(x_t+1 | x_0, ..., x_t): a decoder with no source to attend to (Liu et al. 2018)."""

    def __init__(self, config: DecoderOnlyConfig, vocabulary: int) -> None:
        embedding = nn.Embedding(vocabulary, config.d_model)
        layers = (Layer(config, causal=True) for _ in range(config.num_layers))
        super().__init__(config, layers, embedding, "decoder_mask")
        self.config = config
        self.output = build_output_layer(config, embedding)
        initialise(self, self.output)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position of tokens (B, T)."""
        logits: Tensor = self.output(self.states(tokens))
        return logits

    def states(self, tokens: Tensor) -> Tensor:
        """Compute the input (B, T, D) of ``output`` at all positions of tokens (B, T)."""
        return self.run_causal(tokens)

    def attention(self, tokens: Tensor) -> dict[str, Tensor]:
        """Compute the weights "decoder.<layer>", (B, H, T, T) each, for tokens (B, T)."""
        return self.record("decoder", lambda: self.states(tokens))

    def init_state(self, sentences: int, beam: int, capacity: int) -> State:
        """Build the state before the first of ``capacity`` tokens of ``beam`` hypotheses per text."""
        return self.empty_state(self.table.weight, sentences, beam, capacity)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode tokens (B, K): the next logits (B, K, V), and the state, changed without gradients."""
        return self.output(self.run_causal(tokens, state=state)), state
