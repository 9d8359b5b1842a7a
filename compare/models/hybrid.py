"""Models with parts of both packages: hybrids of an encoder and a decoder, and the ladder between them.

Compare Chen et al. 2018, "The best of both worlds: combining recent advances in neural machine translation",
and Domhan 2018, "How much attention do you need? A granular analysis of neural machine translation
architectures". Shapes: B sentences, K hypotheses each, S source, T target and L positions of any sequence, H
heads, D model width. Masks are bool, True = may be attended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

import seq2seq
import transformer
from seq2seq import Seq2Seq
from seq2seq import initialise_weights as initialise_recurrent
from seq2seq.config import Seq2SeqConfig
from seq2seq.stack import Packing, RecurrentStack, StepwiseStack
from transformer import Parts, Transformer
from transformer.config import IN_ATTENTION, Config, LayerConfig, TransformerConfig, check_rule
from transformer.gated_linear import GatedLinearAttention, StateDecay
from transformer.model import Residual
from transformer.model import initialise as initialise_transformer
from transformer.multihead import RecurrentCache
from transformer.positions import Relation

# Hybrids: the encoder of one family with the decoder of the other.


HalfConfig = Seq2SeqConfig | TransformerConfig

UNUSED: dict[tuple[str, type[HalfConfig]], frozenset[str]] = {
    ("encoder", Seq2SeqConfig): frozenset({"attention", "decoder_start", "feed_summary", "readout"}),
    ("encoder", TransformerConfig): frozenset({"decoder_layers", "decoder_mask", "cross_mask"}),
    ("decoder", Seq2SeqConfig): frozenset({"direction", "encoder_size", "encoder_layers", "num_heads"}),
    ("decoder", TransformerConfig): frozenset({"encoder_layers", "encoder_mask"}),
}
"""Settings without effect in the half that is used; ``num_heads`` always means the Transformer's heads."""


@dataclass(frozen=True, kw_only=True)
class HybridConfig(Config):
    """The encoder of one model with the decoder of another of the other family (compare Chen et al. 2018)."""

    encoder: HalfConfig
    decoder: HalfConfig

    def __post_init__(self) -> None:
        if type(self.encoder) is type(self.decoder):
            raise ValueError(
                f"encoder and decoder are both {type(self.encoder).__name__}: a hybrid needs two families"
            )
        for name in ("dropout", "tie"):
            one, other = getattr(self.encoder, name), getattr(self.decoder, name)
            if one != other:
                raise ValueError(f"{name} must be the same in both halves, got {one!r} and {other!r}")
        one, other = (
            half.d_model if isinstance(half, TransformerConfig) else half.embedding_size
            for half in (self.encoder, self.decoder)
        )
        is_shared = self.decoder.tie == "all"
        message = f"needs embeddings of one width, got {one} and {other}"
        check_rule(self.decoder, "tie", not is_shared or one == other, message)
        is_rnn = isinstance(self.decoder, Seq2SeqConfig)
        role, rnn = ("decoder", self.decoder) if is_rnn else ("encoder", self.encoder)
        assert isinstance(rnn, Seq2SeqConfig)
        rule = partial(check_rule, rnn)
        message = f'is of an RNN that is not there: that of this hybrid is its {role}: use "{role}" or "none"'
        rule("self_attention", rnn.self_attention in ("none", role), message)
        if is_rnn:
            no_last_state = "a Transformer encoder has no last state"
            if rnn.attention is None:
                raise ValueError(f"the decoder needs an attention: {no_last_state}")
            message = 'needs a recurrent encoder, whose width sets that of the output layer: use "tanh"'
            rule("readout", rnn.readout != "none", message)
            rule("decoder_start", rnn.start != "last", f'must be "bridge" or "zeros": {no_last_state}')
        elif isinstance(self.decoder, TransformerConfig):
            width, is_bare = self.decoder.d_model, self.decoder.projections == "none"
            message = f"needs encoder_size {width}, which is d_model"
            check_rule(self.decoder, "projections", not is_bare or rnn.states_size == width, message)


def build_hybrid(config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> Seq2Seq | Transformer:
    """Build a hybrid with fresh weights, each half initialised as in its own family.

    A ValueError says that tied vocabularies differ in size.
    """
    hybrid = TransformerRNN if isinstance(config.decoder, Seq2SeqConfig) else RNNTransformer
    return hybrid(config, src_vocabulary, tgt_vocabulary)


class TransformerEncoder(transformer.Encoder):
    """A Transformer that reads; its output is that of a recurrent encoder."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None) -> Any:
        """Return a ``seq2seq.EncoderOutput``, with the mean of each sentence's states as the summary."""
        return seq2seq.EncoderOutput(*super().forward(src, src_mask))


class TransformerRNN(Seq2Seq):
    """A Transformer reads, an RNN with attention writes; it starts from the mean of the source's states."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        nn.Module.__init__(self)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, TransformerConfig)
        assert isinstance(decoder, Seq2SeqConfig)
        src_embedding = nn.Embedding(src_vocabulary, encoder.d_model)
        self.config: Any = config
        self.encoder: Any = TransformerEncoder(encoder, src_embedding)
        self.decoder = seq2seq.Decoder(decoder, tgt_vocabulary, encoder.d_model, encoder.d_model)
        self.output = nn.Linear(decoder.output_size, tgt_vocabulary)
        self.decoder.apply(initialise_recurrent)
        initialise_recurrent(self.output)
        initialise_transformer(self.encoder)
        _tie(config, self.output, src_embedding, self.decoder.embedding)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights of the Transformer's encoder and of the recurrent decoder, by their names."""
        weights: dict[str, Tensor] = self.encoder.attention(src, src_mask)
        return weights | super().attention(src, src_mask, tgt_in)


class RecurrentEncoder(seq2seq.Encoder):
    """An RNN that reads, with the methods of a Transformer's encoder."""

    def attention(self, src: Tensor, src_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the weights of self-attention, "encoder" (B, D, S, S), if there is one."""
        weights = self(src, src_mask).self_attention
        return {} if weights is None else {"encoder": weights}


class RNNTransformer(Transformer):
    """An RNN reads, a Transformer writes."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        nn.Module.__init__(self)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, Seq2SeqConfig)
        assert isinstance(decoder, TransformerConfig)
        self.config: Any = config
        self.encoder: Any = RecurrentEncoder(encoder, src_vocabulary)
        tgt_embedding = nn.Embedding(tgt_vocabulary, decoder.d_model)
        self.decoder = transformer.Decoder(decoder, tgt_embedding, memory_size=encoder.states_size)
        self.output = nn.Linear(decoder.d_model, tgt_vocabulary, bias=False)
        self.encoder.apply(initialise_recurrent)
        initialise_transformer(self.decoder)
        nn.init.normal_(self.output.weight, std=decoder.d_model**-0.5)
        _tie(config, self.output, self.encoder.embedding, tgt_embedding)


def _tie(config: HybridConfig, output: nn.Linear, source: nn.Embedding, target: nn.Embedding) -> None:
    if config.decoder.tie != "none":
        output.weight = target.weight
    if config.decoder.tie == "all":
        if source.num_embeddings != target.num_embeddings:
            raise ValueError(
                f'tie "all" needs one vocabulary for both sides, got {source.num_embeddings} source and '
                f'{target.num_embeddings} target entries: use a joint vocabulary, or tie "output"'
            )
        source.weight = target.weight


# The ladder from an RNN to the Transformer: a Transformer with recurrent layers in place of self-attention.


Mixer = Literal["self-attention", "lstm", "gru", "gated-linear"]
CrossLayers = Literal["all", "last"]
DIRECTIONS = 2


@dataclass(frozen=True, kw_only=True)
class LadderConfig(TransformerConfig):
    """A Transformer whose parts can be taken away, one by one, down to an RNN with attention.

    Compare Domhan 2018, "How much attention do you need?", https://aclanthology.org/P18-1167. With the
    defaults it is the Transformer.
    """

    encoder_mixer: Mixer = "self-attention"
    """What connects the positions of an encoder layer: self-attention, a bidirectional LSTM or GRU, or gated
    linear attention, half of whose heads read backwards ("gated-linear", Yang et al. 2024)."""
    decoder_mixer: Mixer = "self-attention"
    """What connects the positions of a decoder layer: self-attention, or one of the others, starting at 0."""
    state_decay: StateDecay = "vector"
    """Decays of "gated-linear": one per token and dimension of a key ("vector"), one per token and head
    ("scalar", as in Mamba-2), or 1 - 2^(-5 - h) in head h ("fixed", as in RetNet)."""
    cross_layers: CrossLayers = "all"
    """Decoder layers that attend to the source: each of them, or the last alone."""
    feed_forward: bool = True
    """Whether layers end with a feed-forward sublayer."""
    residual: bool = True
    """Whether mixers and feed-forward sublayers have residual connections."""
    cross_residual: bool = True
    """Whether the context of attention to the source is added to the state, which it replaces otherwise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = partial(check_rule, self)
        mixers = {"encoder": self.encoder_mixer, "decoder": self.decoder_mixer}
        recurrent = {side: mixer for side, mixer in mixers.items() if mixer != "self-attention"}
        for side, mixer in recurrent.items():
            rule(f"{side}_mask", False, f'has no effect with {side}_mixer "{mixer}"')
        for name, of_attention in (("positions", IN_ATTENTION), ("projections", ("shared-qk",))):
            has_effect = len(recurrent) < 2 or getattr(self, name) not in of_attention
            rule(name, has_effect, "needs self-attention in the encoder or the decoder")
        is_gated = "gated-linear" in recurrent.values()
        rule(
            "state_decay", is_gated, 'has no effect without an encoder_mixer or decoder_mixer "gated-linear"'
        )
        for name in ("activation_dropout", "activation"):
            rule(name, self.feed_forward, "has no effect with feed_forward false")
        halved = "num_heads" if self.encoder_mixer == "gated-linear" else "d_model"
        is_even = "encoder" not in recurrent or getattr(self, halved) % DIRECTIONS == 0
        rule(halved, is_even, "must be even, half of it for each direction")


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


class RecurrentMixer(nn.Module):
    """One LSTM or GRU over the positions, bidirectional in an encoder; called as ``SelfAttention`` is."""

    def __init__(self, config: LadderConfig, cell: Mixer, *, bidirectional: bool) -> None:
        super().__init__()
        size = config.d_model // 2 if bidirectional else config.d_model
        plain = Seq2SeqConfig(attention=None, cell="gru" if cell == "gru" else "lstm", dropout=0.0)
        self.rnn = RecurrentStack(plain, config.d_model, size, bidirectional)
        self.is_bidirectional = bidirectional

    def forward(self, x: Tensor, relation: Relation) -> Tensor:
        """Read x (B, L, D), in both directions up to the last real token by the mask (B, 1, 1, L)."""
        if not self.is_bidirectional or (mask := relation.mask) is None:
            outputs, _ = self.rnn(x.transpose(0, 1))
            return cast("Tensor", outputs).transpose(0, 1)
        lengths = mask.flatten(1).sum(1).cpu() if relation.lengths is None else relation.lengths
        layout = Packing(lengths, x.size(1), x.device)
        outputs, _ = self.rnn(layout.pack(x))
        return layout.unpack(outputs, x.size(1)).to(x.dtype)

    def empty_cache(self, _: Tensor, sentences: int, beam: int, capacity: int) -> RecurrentCache:
        """Return h and (LSTM) c before the first token, (B, K, D): zeros, c in at least fp32."""
        h = next(self.parameters()).new_zeros(sentences, beam, self.rnn.size)
        cell = (h.to(torch.promote_types(h.dtype, torch.float32)),) if self.rnn.is_lstm else ()
        return RecurrentCache((h, *cell))

    def step(self, x: Tensor, cache: RecurrentCache, relation: Relation) -> Tensor:
        """Read the next token x (B, K, D) of each hypothesis; ``cache`` then has the next state."""
        h, c = ([part.flatten(0, 1)] for part in (cache.state[0], cache.state[-1]))  # a GRU does not read c
        inputs = x.flatten(0, 1)
        (output,) = StepwiseStack(self.rnn, inputs.unsqueeze(0))(inputs[:, :0], h, c)
        cache.state = tuple(part.view(cache.state[0].shape) for part in (*h, *c)[: len(cache.state)])
        cache.length += 1
        return output.view(x.shape).to(x.dtype)


class Ladder(Transformer):
    """A Transformer with some parts replaced: x = around(mixer)(x), + cross-attention, around(FFN)(x).

    ``mixer`` is self-attention or a recurrence; the last two are left out where the config says so.
    Recurrent decoder layers start at 0: the decoder knows the source by attention alone.
    """

    config: LadderConfig

    def __init__(self, config: LadderConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        parts = Parts(residual=Residual if config.residual else NoResidual)
        super().__init__(config, src_vocabulary, tgt_vocabulary, parts)
        for stack, mixer in ((self.encoder, config.encoder_mixer), (self.decoder, config.decoder_mixer)):
            if mixer != "self-attention":
                stack.order = None  # there is no self-attention that needs distances
            for number, layer in enumerate(stack.layers):
                if mixer == "gated-linear":
                    both = stack is self.encoder
                    layer.attention = GatedLinearAttention(
                        config, bidirectional=both, state_decay=config.state_decay
                    )
                    initialise_transformer(layer.attention)
                elif mixer != "self-attention":
                    layer.attention = RecurrentMixer(config, mixer, bidirectional=stack is self.encoder)
                if not config.feed_forward:
                    layer.feed_forward = layer.around_feed_forward = None
                if config.cross_layers == "last" and number < len(stack.layers) - 1:
                    layer.cross = layer.around_cross = None
                elif layer.cross is not None:
                    layer.around_cross = (Residual if config.cross_residual else NoResidual)(config)
        for module in self.modules():
            if isinstance(module, nn.RNNBase):
                initialise_recurrent(module)
