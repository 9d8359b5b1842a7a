"""A recurrent language model: the decoder of ``Seq2Seq`` without a source.

Shapes: B texts, K hypotheses each, T positions, L layers, H size of a state, D input width of the output
layer, V vocabulary.
"""

from torch import Tensor, nn
from torch.nn.functional import dropout

from .attention import Source
from .config import RecurrentLanguageModelConfig
from .decoder import Decoder, Memory, State
from .model import initialise_weights


class RecurrentLanguageModel(nn.Module):
    """p(x) = prod_t softmax(W h(t) + b)_x(t+1), h(t) = cell(x(t), h(t-1)), h(0) = 0 (Mikolov et al. 2010).

    With LSTM layers and dropout outside the recurrence it is the model of Zaremba et al. 2014. Each text
    starts from a state of zeros: sentences are independent of each other.

    Examples:
        >>> model = RecurrentLanguageModel(RecurrentLanguageModelConfig(), vocabulary=1000)
        >>> logits = model(tokens)  # (B, T, V) from (B, T); position t predicts the token after tokens[t]
    """

    def __init__(self, config: RecurrentLanguageModelConfig, vocabulary: int) -> None:
        """Create a model with initial weights.

        Args:
            config: cell, sizes and dropouts.
            vocabulary: number of token ids, V.
        """
        super().__init__()
        self.config, decoder = config, config.decoder
        self.decoder = Decoder(decoder, vocabulary, value_size=0, summary_size=decoder.start_size)
        self.output = nn.Linear(decoder.output_size, vocabulary)
        self.apply(initialise_weights)
        if config.tie != "none":
            self.output.weight = self.decoder.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the token after each position.

        Position t depends on tokens 0 to t, so padding on the right needs no mask.

        Args:
            tokens: ids, (B, T).

        Returns:
            The logits, (B, T, V).
        """
        logits: Tensor = self.output(self.states(tokens))
        return logits

    def states(self, tokens: Tensor) -> Tensor:
        """Compute the input of ``output`` at all positions of tokens (B, T): (B, T, D)."""
        return self._dropout(self.decoder(tokens, self._memory(tokens.size(0))).readout)

    def attention(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the attention weights by name: none, as an RNN has no attention.

        Args:
            tokens: ids (B, T).
        """
        return {}

    def init_state(self, sentences: int, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            sentences: number of texts B.
            beam: number of hypotheses K per text.
            capacity: largest number of steps; unused, since a recurrent state does not grow.

        Returns:
            A state of zeros.
        """
        return self.decoder.init_state(self._memory(sentences), beam)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed one token per hypothesis.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: output of ``init_state`` or of the previous step.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """
        readout, state = self.decoder.step(tokens, state, self._memory(tokens.size(0)))
        logits: Tensor = self.output(self._dropout(readout))
        return logits, state

    def _memory(self, sentences: int) -> Memory:
        """Return what a decoder without attention reads of a source: a first state, here of zeros."""
        weight, config = self.decoder.embedding.weight, self.decoder.config
        nothing = weight.new_zeros(sentences, 0, 0)
        start = weight.new_zeros(sentences, config.num_layers, config.start_size // config.num_layers)
        return Memory(Source(nothing, nothing, nothing.new_zeros(sentences, 0).bool()), start)

    def _dropout(self, readout: Tensor) -> Tensor:
        return dropout(readout, self.config.dropout, self.training)
