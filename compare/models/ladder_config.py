"""Config of the ladder from an RNN to the Transformer (Domhan 2018), one setting per rung."""

from dataclasses import dataclass
from typing import Literal, get_args

import transformer.flops
from transformer.config import TransformerConfig

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
        if recurrent and self.share_layers:
            raise ValueError('share_layers needs encoder_mixer and decoder_mixer "self-attention"')
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
