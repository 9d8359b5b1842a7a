"""The Transformer: an encoder and a decoder.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from torch import Tensor, nn

from .cache import Features, Memory, State
from .config import LayerConfig, TransformerConfig
from .decoder import Decoder
from .encoder import Encoder
from .layers import STANDARD, Parts
from .masks import check_target

# Embeddings, output layer, how they are tied, and weight initialisation.
#
# Shapes: D model width, V vocabulary.


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
