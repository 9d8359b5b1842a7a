"""Translation by a decoder alone: source and target are one sequence.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

import torch
from torch import Tensor

from .attention import Attend, KeysValues, fused_attention, recording
from .config import DecoderOnlyConfig
from .encoder import LayerStack
from .masks import prefix
from .parts import STANDARD, Parts
from .state import Features, Memory, State, empty_state
from .weights import embedding_tables, initialise, output_layer


class DecoderOnly(LayerStack):
    """One stack over [source; target] under a prefix mask, for translation.

    Source positions see the whole source, target positions the source and the target up to themselves: the
    prefix language model of Raffel et al. 2020 (section 3.2.1), here for translation as in Wang et al. 2021.
    Target positions are counted on from the end of the sentence's own source. Source and target words have
    tables of their own, which is all that tells the one from the other, unless all are tied.
    """

    def __init__(
        self, config: DecoderOnlyConfig, src_vocabulary: int, tgt_vocabulary: int, parts: Parts = STANDARD
    ) -> None:
        if parts.attend is not fused_attention:
            raise ValueError(
                "attend cannot be replaced in DecoderOnly: a step attends to the source and to what was "
                "written since by a softmax of its own"
            )
        src_table, tgt_table = embedding_tables(config, src_vocabulary, tgt_vocabulary)
        super().__init__(config, config.num_layers, tgt_table, parts)
        self.config = config
        self.src_table = src_table
        self.output = output_layer(config, tgt_table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrices as Glorot does (merged ones as one), embeddings and output with deviation D^-0.5."""
        initialise(self, self.output)

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """Give the logits (B, T, V) of the token after each of tgt_in (B, T); src and src_mask are (B, S)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run source and target at once; ``hidden`` (B, T, D) is the input of ``output``."""
        return Features(self._states(src, src_mask, tgt_in)[:, src.size(1) :])

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Give the attention weights that the target's positions have in every layer.

        Returns:
            "cross.<layer>" (B, H, T, S), to the source, and "decoder.<layer>" (B, H, T, T), to the target:
            two parts of one distribution, which together sum to 1.
        """
        found: list[Tensor] = []
        self._states(src, src_mask, tgt_in, recording(self.attend, found))
        src_len, weights = src.size(1), {}
        for n, table in enumerate(found):
            rows = table[:, :, src_len:]
            weights[f"cross.{n}"], weights[f"decoder.{n}"] = rows[..., :src_len], rows[..., src_len:]
        return weights

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        """Read src (B, S) under src_mask (B, S) once: keep the keys and values of every layer."""
        layers: list[KeysValues] = []

        def attend(
            queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
        ) -> Tensor:
            layers.append(KeysValues(keys.contiguous(), values.contiguous()))
            return self.attend(queries, keys, values, mask, causal, dropout)

        mask = src_mask[:, None, None, :]
        self.run(self._source(src), mask, attend)
        return Memory(tuple(layers), mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Make the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        shape = (memory.mask.size(0), beam, self.config.attention_size)
        return empty_state(memory.layers[0].keys, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state. ``state`` is dead afterwards."""
        positions = memory.mask.sum(-1).flatten(1) + state.length  # (B, 1)
        x = self.place(self.table(tokens), positions)
        return self.output(self.advance(x, state, memory)), state

    def _source(self, src: Tensor) -> Tensor:
        """The source (B, S) as the stack reads it, (B, S, D)."""
        embedded: Tensor = self.place(self.src_table(src), torch.arange(src.size(1), device=src.device))
        return embedded

    def _states(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, attend: Attend | None = None) -> Tensor:
        """The states (B, S + T, D) of source and target."""
        tgt_len = tgt_in.size(1)
        positions = src_mask.sum(1, keepdim=True) + torch.arange(tgt_len, device=src.device)  # (B, T)
        target = self.place(self.table(tgt_in), positions)
        whole = torch.cat((self._source(src), target), dim=1)
        return self.run(whole, prefix(src_mask, tgt_len), attend)
