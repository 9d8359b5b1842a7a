"""The ladder from an RNN to the Transformer: a Transformer with recurrent layers in place of self-attention.

Compare Domhan 2018, "How much attention do you need? A granular analysis of neural machine translation
architectures". Shapes: B sentences, K hypotheses each, S source, T target and L positions of any sequence, H
heads, D model width. Masks are bool, True = may be attended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, cast, get_args

import torch
from torch import Tensor, nn

import transformer.flops
from compare.protocol import keep, select
from seq2seq import Seq2SeqConfig, initialise_weights
from seq2seq.fast import Padding, plan_layout
from seq2seq.stack import RecurrentStack, StepwiseStack
from transformer import Memory, Parts, State, Transformer
from transformer.attention import KeysValues, record_weights
from transformer.config import LayerConfig, TransformerConfig
from transformer.layers import Residual, build_norm
from transformer.masks import check_target
from transformer.multihead import KeyValueCache

# Config of the ladder from an RNN to the Transformer (Domhan 2018), one setting per rung.


Mixer = Literal["self-attention", "lstm", "gru"]
CrossLayers = Literal["all", "last"]
DIRECTIONS = 2
"""Directions of a recurrent encoder layer, each of half the width."""
GATES = {"lstm": 4, "gru": 3}


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

    def __post_init__(self) -> None:
        """Reject options that would have no effect, and widths that two directions cannot share."""
        super().__post_init__()
        for name, choice in (
            ("encoder_mixer", Mixer),
            ("decoder_mixer", Mixer),
            ("cross_layers", CrossLayers),
        ):
            if getattr(self, name) not in get_args(choice):
                allowed = ", ".join(get_args(choice))
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        recurrent = [s for s in ("encoder", "decoder") if getattr(self, f"{s}_mixer") != "self-attention"]
        for side in recurrent:
            if getattr(self, f"{side}_mask") != "full":
                raise ValueError(f'{side}_mask has no effect with {side}_mixer "{self.mixer(side)}"')
        if len(recurrent) == 2 and self.positions in ("rotary", "relative", "alibi"):
            raise ValueError(
                f'positions "{self.positions}" need self-attention in the encoder or the decoder'
            )
        if self.activation_dropout and not self.feed_forward:
            raise ValueError("activation_dropout has no effect with feed_forward false")
        if self.activation != "relu" and not self.feed_forward:
            raise ValueError(f'activation "{self.activation}" has no effect with feed_forward false')
        if self.encoder_mixer != "self-attention" and self.d_model % DIRECTIONS:
            raise ValueError(f"d_model must be even, half of it for each direction, got {self.d_model}")

    def mixer(self, side: str) -> Mixer:
        """Return the mixer of "encoder" or "decoder"."""
        return self.encoder_mixer if side == "encoder" else self.decoder_mixer


def ladder_multiply_adds(config: LadderConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded.

    Args:
        config: the model.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
    """
    total = 0.0
    if config.positions == "network":
        total += 2 * (src_len + tgt_len) * config.d_model**2
    for side, layers, length, directions in (
        ("encoder", config.encoder_layers, src_len, DIRECTIONS),
        ("decoder", config.decoder_layers, tgt_len, 1),
    ):
        mixer = config.mixer(side)
        if mixer == "self-attention":
            total += layers * transformer.flops.self_attention_multiply_adds(
                config,
                length,
                causal=side == "decoder",
                mask=config.encoder_mask if side == "encoder" else config.decoder_mask,
            )
        else:
            size = config.d_model // directions
            total += layers * length * directions * GATES[mixer] * size * (config.d_model + size)
        if config.feed_forward:
            total += layers * transformer.flops.feed_forward_multiply_adds(config, length)
    attending = config.decoder_layers if config.cross_layers == "all" else 1
    return total + attending * transformer.flops.cross_attention_multiply_adds(config, src_len, tgt_len)


class Plain(nn.Module):
    """dropout(f(norm(x))), or norm(dropout(f(x))) with norm "post": no residual connection."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre, self.norm = config.norm != "post", build_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer to x (B, L, D)."""
        output: Tensor
        output = self.dropout(sublayer(self.norm(x))) if self.pre else self.norm(self.dropout(sublayer(x)))
        return output


class Absent(nn.Module):
    """x: in the place of a sublayer that the model does not have."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x (B, L, D) without calling the sublayer."""
        return x


class NoCrossAttention(nn.Module):
    """No keys and values: in the place of an attention to the source that the layer does not have."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def remember(self, states: Tensor) -> KeysValues:
        """Return keys and values of width 0 for encoder states (B, S, D)."""
        nothing = states.new_empty(states.size(0), self.num_heads, states.size(1), 0)
        return KeysValues(nothing, nothing)


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

    def forward(self, x: Tensor, mask: Tensor | None, *unused: object) -> Tensor:
        """Read x (B, L, D), in both directions up to the last real token, which mask (B, 1, 1, L) marks."""
        if not self.is_bidirectional or mask is None:
            outputs, _ = self.rnn(x.transpose(0, 1))
            return cast("Tensor", outputs).transpose(0, 1)
        lengths = mask.flatten(1).sum(1)
        # To pack, the host would have to wait for the lengths on a GPU.
        layout = Padding(lengths) if mask.is_cuda else plan_layout(lengths, x.size(1))
        outputs, _ = self.rnn(layout.pack(x))
        return layout.unpack(outputs, x.size(1)).to(x.dtype)

    def start(self, like: Tensor, sentences: int, beam: int) -> RecurrentCache:
        """Return the state before the first token: zeros of the type of ``like``, c in at least fp32."""
        h = like.new_zeros(sentences, beam, self.rnn.size)
        cell = (h.to(torch.promote_types(h.dtype, torch.float32)),) if self.rnn.is_lstm else ()
        return RecurrentCache((h, *cell))

    def step(self, x: Tensor, cache: RecurrentCache, **unused: object) -> Tensor:
        """Read the next token x (B, K, D) of each hypothesis; ``cache`` then has the next state."""
        h, c = ([part.flatten(0, 1)] for part in (cache.state[0], cache.state[-1]))  # of a GRU, c is unused
        inputs = x.flatten(0, 1)
        (output,) = StepwiseStack(self.rnn, inputs.unsqueeze(0))(0, inputs[:, :0], h, c)
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
        around = Residual if config.residual else Plain
        super().__init__(config, src_vocabulary, tgt_vocabulary, Parts(residual=around))
        last = len(self.decoder.layers) - 1
        for stack, mixer, is_encoder in (
            (self.encoder, config.encoder_mixer, True),
            (self.decoder, config.decoder_mixer, False),
        ):
            if mixer != "self-attention":
                stack.order = None  # there is no self-attention that needs distances
            for layer in stack.layers:
                if mixer != "self-attention":
                    _replace(layer, "attention", RecurrentMixer(config, mixer, bidirectional=is_encoder))
                if not config.feed_forward:
                    _replace(layer, "feed_forward", nn.Identity())
                    _replace(layer, "around_feed_forward", Absent())
        for number, layer in enumerate(self.decoder.layers):
            if config.cross_layers == "last" and number < last:
                _replace(layer, "cross", NoCrossAttention(config.num_heads))
                _replace(layer, "around_cross", Absent())
            elif not config.residual:
                _replace(layer, "around_cross", Residual(config))
        self.apply(_initialise_recurrent)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights "encoder.<layer>", "decoder.<layer>" and "cross.<layer>" of all attentions."""
        config, names = self.config, []
        weights: list[Tensor] = []
        states, mask, _ = self.encoder(src, src_mask, attend=record_weights(self.encoder.attend, weights))
        check_target(src, tgt_in)
        memory = self.decoder.remember(states, mask)
        self.decoder(tgt_in, memory, attend=record_weights(self.decoder.attend, weights))
        if config.encoder_mixer == "self-attention":
            names += [f"encoder.{layer}" for layer in range(config.encoder_layers)]
        for layer in range(config.decoder_layers):
            if config.decoder_mixer == "self-attention":
                names.append(f"decoder.{layer}")
            if config.cross_layers == "all" or layer == config.decoder_layers - 1:
                names.append(f"cross.{layer}")
        return dict(zip(names, weights, strict=True))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token; arguments as for ``Transformer``."""
        if self.config.decoder_mixer == "self-attention":
            return super().init_state(memory, beam, capacity)
        like, sentences = self.decoder.table.weight, memory.mask.size(0)
        mixers = [cast("RecurrentMixer", cast("Any", layer).attention) for layer in self.decoder.layers]
        caches = [mixer.start(like, sentences, beam) for mixer in mixers]
        return State(cast("tuple[KeyValueCache, ...]", tuple(caches)))


def _replace(layer: nn.Module, name: str, part: nn.Module) -> None:
    """Replace one part of a layer."""
    setattr(layer, name, part)


def _initialise_recurrent(module: nn.Module) -> None:
    """Draw the weights of recurrent layers as recurrent models do, and leave others as they are."""
    if isinstance(module, nn.RNNBase):
        initialise_weights(module)
