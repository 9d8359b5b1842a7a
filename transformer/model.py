"""The Transformer: an encoder and a decoder.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from torch import Tensor, nn

from .config import TransformerConfig
from .decoder import Decoder
from .encoder import Encoder
from .masks import check_target
from .parts import STANDARD, Parts
from .state import Features, Memory, State
from .weights import build_embeddings, build_output_layer, initialise


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
        if config.share_layers:
            share_layers(self.encoder, self.decoder)
        self.output = build_output_layer(config, tgt_embedding)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights; see ``transformer.weights.initialise``."""
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

    def features(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions; arguments as for ``forward``."""
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


def share_layers(encoder: Encoder, decoder: Decoder) -> None:
    """Let decoder layer n use the matrices and norms of encoder layer n, in place.

    Compare Xia et al. 2019. Attention to the source remains the decoder's own. Embeddings are shared by
    ``tie``.
    """
    for source, target in zip(encoder.layers, decoder.layers, strict=True):
        for name in ("project_in", "project_out", "relative"):
            setattr(target.attention, name, getattr(source.attention, name))
        for name in ("feed_forward", "around_attention", "around_feed_forward"):
            setattr(target, name, getattr(source, name))
    decoder.norm = encoder.norm
