"""The ladder from an RNN to the Transformer: a Transformer with recurrent layers in place of self-attention.

Compare Domhan 2018, "How much attention do you need? A granular analysis of neural machine translation
architectures". Shapes: B sentences, K hypotheses each, S source, T target and L positions of any sequence, H
heads, D model width. Masks are bool, True = may be attended.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Self, cast

import torch
from torch import Tensor, nn

from compare.protocol import keep, select
from seq2seq import Seq2SeqConfig, initialise_weights
from seq2seq.fast import plan_packing
from seq2seq.stack import RecurrentStack, StepwiseStack
from transformer import Memory, Parts, Transformer
from transformer.config import LayerConfig, TransformerConfig
from transformer.layers import Residual
from transformer.positions import Relation

# Config of the ladder from an RNN to the Transformer (Domhan 2018), one setting per rung.


Mixer = Literal["self-attention", "lstm", "gru"]
CrossLayers = Literal["all", "last"]
DIRECTIONS = 2
"""Directions of a recurrent encoder layer, each of half the width."""


@dataclass(frozen=True, kw_only=True)
class LadderConfig(TransformerConfig):
    """A Transformer whose parts can be taken away, one by one, down to an RNN with attention.

    Compare Domhan 2018, "How much attention do you need?", https://aclanthology.org/P18-1167. With the
    defaults it is the Transformer.

    Raises:
        ValueError: as ``TransformerConfig``; or an option has no effect without self-attention.
    """

    encoder_mixer: Mixer = "self-attention"
    """What connects the positions of an encoder layer: self-attention, or a bidirectional LSTM or GRU."""
    decoder_mixer: Mixer = "self-attention"
    """What connects the positions of a decoder layer: self-attention, or an LSTM or GRU that starts at 0."""
    cross_layers: CrossLayers = "all"
    """Decoder layers that attend to the source: each of them, or the last alone."""
    feed_forward: bool = True
    """Whether layers end with a feed-forward sublayer."""
    residual: bool = True
    """Whether mixers and feed-forward sublayers have residual connections. The context of attention to the
    source is always added to the state, which it would replace otherwise."""

    def rules(self) -> Iterator[tuple[bool, str]]:
        """List options that would have no effect, and widths that two directions cannot share."""
        yield from super().rules()
        mixers = {"encoder": self.encoder_mixer, "decoder": self.decoder_mixer}
        recurrent = {side: mixer for side, mixer in mixers.items() if mixer != "self-attention"}
        for side, mixer in recurrent.items():
            is_masked = getattr(self, f"{side}_mask") != "full"
            yield is_masked, f'{side}_mask has no effect with {side}_mixer "{mixer}"'
        yield (
            len(recurrent) == 2 and self.positions in ("rotary", "relative", "t5", "alibi"),
            f'positions "{self.positions}" need self-attention in the encoder or the decoder',
        )
        for name, default in (("activation_dropout", 0.0), ("activation", "relu")):
            is_given = getattr(self, name) != default
            yield is_given and not self.feed_forward, f"{name} has no effect with feed_forward false"
        yield (
            "encoder" in recurrent and self.d_model % DIRECTIONS != 0,
            f"d_model must be even, half of it for each direction, got {self.d_model}",
        )


class NoResidual(Residual):
    """dropout(f(norm(x))), or norm(dropout(f(x))) with norm "post": no residual connection."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer to x (B, L, D)."""
        output: Tensor
        output = self.dropout(sublayer(self.norm(x))) if self.pre else self.norm(self.dropout(sublayer(x)))
        return output


class RecurrentCache:
    """State of a recurrent layer for K hypotheses of each of B sentences: h and (LSTM) c, (B, K, D) each."""

    def __init__(self, state: tuple[Tensor, ...]) -> None:
        self.state, self.length = state, 0

    def select(self, parents: Tensor) -> Self:
        """Reorder hypotheses: hypothesis k of sentence b continues ``parents[b, k]``; parents is (B, K)."""
        self.state = select(self.state, parents)
        return self

    def keep(self, rows: Tensor) -> Self:
        """Keep the sentences ``rows`` alone."""
        self.state = keep(self.state, rows)
        return self


class RecurrentMixer(nn.Module):
    """One LSTM or GRU over the positions, bidirectional in an encoder; called as ``SelfAttention`` is."""

    def __init__(self, config: LadderConfig, cell: Mixer, *, bidirectional: bool) -> None:
        super().__init__()
        size = config.d_model // 2 if bidirectional else config.d_model
        plain = Seq2SeqConfig(attention=None, cell="gru" if cell == "gru" else "lstm", dropout=0.0)
        self.rnn = RecurrentStack(plain, config.d_model, size, bidirectional)
        self.is_bidirectional = bidirectional
        self.lengths: Tensor | None = None
        """The lengths of the sentences on the host, where they are known: a GPU is not waited for."""

    def forward(self, x: Tensor, relation: Relation) -> Tensor:
        """Read x (B, L, D), in both directions up to the last real token by the mask (B, 1, 1, L)."""
        if not self.is_bidirectional or (mask := relation.mask) is None:
            outputs, _ = self.rnn(x.transpose(0, 1))
            return cast("Tensor", outputs).transpose(0, 1)
        lengths = mask.flatten(1).sum(1).cpu() if self.lengths is None else self.lengths
        layout = plan_packing(lengths, x.size(1), x.device)
        outputs, _ = self.rnn(layout.pack(x))
        return layout.unpack(outputs, x.size(1)).to(x.dtype)

    def empty_cache(self, _: Tensor, sentences: int, beam: int, capacity: int) -> RecurrentCache:
        """Return the state before the first token: zeros of the type of the weights, c in at least fp32."""
        h = next(self.parameters()).new_zeros(sentences, beam, self.rnn.size)
        cell = (h.to(torch.promote_types(h.dtype, torch.float32)),) if self.rnn.is_lstm else ()
        return RecurrentCache((h, *cell))

    def step(self, x: Tensor, cache: RecurrentCache, relation: Relation) -> Tensor:
        """Read the next token x (B, K, D) of each hypothesis; ``cache`` then has the next state."""
        h, c = ([part.flatten(0, 1)] for part in (cache.state[0], cache.state[-1]))  # of a GRU, c is unused
        inputs = x.flatten(0, 1)
        (output,) = StepwiseStack(self.rnn, inputs.unsqueeze(0))(inputs[:, :0], h, c)
        cache.state = tuple(part.view(cache.state[0].shape) for part in (*h, *c)[: len(cache.state)])
        cache.length += 1
        return output.view(x.shape).to(x.dtype)


class Ladder(Transformer):
    """A Transformer with some parts replaced: x = around(mixer)(x), + cross-attention, around(FFN)(x).

    ``mixer`` is self-attention or a recurrent layer; the last two are left out where the config says so.
    Recurrent decoder layers start at 0: the decoder knows the source by attention alone.
    """

    config: LadderConfig

    def __init__(self, config: LadderConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        """Build the model with fresh weights; arguments as for ``Transformer``."""
        parts = Parts(residual=Residual if config.residual else NoResidual)
        super().__init__(config, src_vocabulary, tgt_vocabulary, parts)
        for stack, mixer in ((self.encoder, config.encoder_mixer), (self.decoder, config.decoder_mixer)):
            if mixer != "self-attention":
                stack.order = None  # there is no self-attention that needs distances
            for number, layer in enumerate(stack.layers):
                if mixer != "self-attention":
                    is_encoder = stack is self.encoder
                    layer.attention = RecurrentMixer(config, mixer, bidirectional=is_encoder)
                if not config.feed_forward:
                    layer.feed_forward = layer.around_feed_forward = None
                if config.cross_layers == "last" and number < len(stack.layers) - 1:
                    layer.cross = layer.around_cross = None
                elif layer.cross is not None:
                    layer.around_cross = Residual(config)
        self.apply(_initialise_recurrent)

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> Memory:
        """Encode src (B, S); as of ``Transformer``, but recurrent layers read lengths (B,), on the CPU."""
        mixers = [part for part in self.encoder.modules() if isinstance(part, RecurrentMixer)]
        for mixer in mixers:
            mixer.lengths = src_lengths
        try:
            return super().encode(src, src_mask)
        finally:
            for mixer in mixers:
                mixer.lengths = None


def _initialise_recurrent(module: nn.Module) -> None:
    """Draw the weights of recurrent layers as recurrent models do, and leave others as they are."""
    if isinstance(module, nn.RNNBase):
        initialise_weights(module)
