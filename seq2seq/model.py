"""The recurrent translation model; it implements ``compare.protocol.EncoderDecoder`` without importing it."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import dropout

from .attention import AttentionOutput
from .cells import MIN_CELLS, LayerNormLSTMCell, MinCell
from .config import Seq2SeqConfig
from .decoder import Decoder, Memory, State
from .encoder import Encoder
from .masks import check_target

# Initial weights of the recurrent models.


LSTM_GATES, GRU_GATES = 4, 3
LSTM_FORGET_GATE = 1
"""Index of the forget gate in torch's order i, f, g, o."""


def initialise_weights(module: nn.Module) -> None:
    """Initialise the parameters of one module in place; use it as ``model.apply(initialise_weights)``.

    - Matrices are Xavier-uniform (Glorot and Bengio 2010, eq. 16).
    - Recurrent matrices are orthogonal (Saxe et al. 2014).
    - The matrices of recurrent cells are initialised gate by gate, since each gate is a layer of its own.
    - Embeddings are uniform in [-0.1, 0.1] (Luong et al. 2015, section 4.1).
    - Biases are 0, except that the forget bias of an LSTM is 1, so that it remembers from the start
      (Jozefowicz et al. 2015).

    Args:
        module: an ``nn.Embedding``, ``nn.Linear``, ``nn.Conv1d``, ``nn.LSTM`` or ``nn.GRU``; all others
            are left unchanged; ``LayerNormLSTMCell`` counts as ``nn.LSTM``, ``MinCell`` as its own kind. The
            order of its gates is z, n (minGRU) or i, f, n (minLSTM).
    """
    if isinstance(module, nn.Embedding):
        nn.init.uniform_(module.weight, -0.1, 0.1)
    elif isinstance(module, nn.Linear | nn.Conv1d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RNNBase | LayerNormLSTMCell | MinCell):
        is_lstm, gates = not isinstance(module, nn.GRU), LSTM_GATES
        if isinstance(module, nn.GRU):
            gates = GRU_GATES
        elif isinstance(module, MinCell):
            is_lstm, gates = module.num_gates == MIN_CELLS["min-lstm"], module.num_gates
        for name, parameter in module.named_parameters():
            if name.startswith("gain") or name == "bias_c":
                continue  # 1 and 0 from the start
            for gate, block in enumerate(parameter.detach().chunk(gates)):
                _initialise_gate(name, block, is_forget_gate=is_lstm and gate == LSTM_FORGET_GATE)


def _initialise_gate(name: str, block: Tensor, is_forget_gate: bool) -> None:
    if name.startswith("weight_ih"):
        nn.init.xavier_uniform_(block)
    elif name.startswith("weight_hh"):
        nn.init.orthogonal_(block)
    else:  # torch adds two biases, bias_ih and bias_hh: only one of them gets the 1
        nn.init.constant_(block, 1.0 if is_forget_gate and name.startswith("bias_ih") else 0.0)


# The recurrent translation model, which implements ``compare.protocol.EncoderDecoder`` without importing
# it.
#
# Shapes: B sentences, K hypotheses per sentence, S source and T target positions, D size of the readout,
# V target vocabulary. Masks are True for real tokens; padding is on the right.


class Choices(NamedTuple):
    """Source positions that hard attention has sampled, for the loss."""

    logp: Tensor
    """Log-probability of the sampled positions, (B, T)."""
    value: Tensor
    """Baseline of REINFORCE, (B, T)."""
    entropy: Tensor | None = None
    """Weighted entropy of the choice, (B, T), a part of the objective; only with ``entropy_weight``."""
    average: Tensor | None = None
    """Moving average of the rewards, (1,), which the loss changes in place; only with that baseline."""


class Features(NamedTuple):
    """Outputs of a model that the loss is computed from."""

    hidden: Tensor
    """Input of the output layer, (B, T, D)."""
    choices: Choices | None = None
    """The sampled positions; only with normaliser "reinforce" in training."""


def collect_features(hidden: Tensor, attention: AttentionOutput | None, decoder: Decoder) -> Features:
    """Collect what the loss needs.

    Args:
        hidden: input of the output layer, (B, T, D).
        attention: output of the attention to the source; None without attention.
        decoder: the decoder that attended.
    """
    if attention is None or attention.choice_logp is None or attention.value is None:
        return Features(hidden)
    assert decoder.attention is not None
    average = decoder.attention.normaliser.average
    return Features(hidden, Choices(attention.choice_logp, attention.value, attention.entropy, average))


class Seq2Seq(nn.Module):
    """A recurrent encoder-decoder with or without attention (Bahdanau et al. 2015, Luong et al. 2015).

    Special token ids have no meaning to the model: padding is defined by ``src_mask`` alone. Padding of the
    target needs no mask, because a decoder state depends on earlier tokens only; the loss must ignore it.

    Examples:
        >>> model = Seq2Seq(Seq2SeqConfig(hidden_size=64), src_vocabulary=1000, tgt_vocabulary=1000)
        >>> logits = model(src, src_mask, tgt_in)  # (B, T, V) from (B, S), (B, S) and (B, T)
    """

    def __init__(self, config: Seq2SeqConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        """Create a model with initial weights.

        Args:
            config: architecture and sizes.
            src_vocabulary: number of source token ids.
            tgt_vocabulary: number of target token ids, V.

        Raises:
            ValueError: all embeddings are tied, but the vocabularies differ in size.
        """
        super().__init__()
        if config.tie == "all" and src_vocabulary != tgt_vocabulary:
            raise ValueError(
                f'tie "all" needs one vocabulary for both sides, got {src_vocabulary} source and '
                f'{tgt_vocabulary} target entries: use a joint vocabulary, or tie "output"'
            )
        self.config = config
        self.encoder = Encoder(config, src_vocabulary)
        self.decoder = Decoder(config, tgt_vocabulary, self.encoder.state_size, self.encoder.summary_size)
        self.output = nn.Linear(config.output_size, tgt_vocabulary)
        self.apply(initialise_weights)
        if config.tie != "none":
            self.output.weight = self.decoder.embedding.weight
        if config.tie == "all":
            self.encoder.embedding.weight = self.decoder.embedding.weight

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits of every target position; arguments as for ``features``.

        Returns:
            Logits (B, T, V); position t predicts the token after tgt_in[t].
        """
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Run a whole target with teacher forcing, up to the output layer.

        Args:
            src: source token ids, padded on the right, (B, S).
            src_mask: True or 1 for real tokens, at least one per sentence, (B, S); None: all are real.
            tgt_in: target token ids, each sentence beginning with its start token, (B, T).
            src_lengths: number of real source tokens per sentence, on the CPU, (B,). None reads them from
                the mask, which waits for a GPU.

        Raises:
            ValueError: ``src_mask`` is not such a mask, or ``tgt_in`` is of another number of sentences.
        """
        memory = self.encode(src, src_mask, src_lengths)
        check_target(src, tgt_in)
        readout, attention, _ = self.decoder(tgt_in, memory)
        return collect_features(self._dropout(readout), attention, self.decoder)

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> Memory:
        """Encode the source, once for all steps and hypotheses; arguments as for ``features``."""
        return self.decoder.remember(self.encoder(src, src_mask, src_lengths))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Return the state before the first token.

        Args:
            memory: output of ``encode``.
            beam: number of hypotheses per sentence, K.
            capacity: largest number of steps; unused, since a recurrent state does not grow.
        """
        return self.decoder.init_state(memory, beam)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed one token per hypothesis.

        Args:
            tokens: target token ids, (B, K).
            state: output of ``init_state`` or of the previous step.
            memory: output of ``encode``.

        Returns:
            Logits of the next token (B, K, V) and the next state.
        """
        readout, state = self.decoder.step(tokens, state, memory)
        logits: Tensor = self.output(self._dropout(readout))
        return logits, state

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of a whole target; arguments as for ``features``.

        Returns:
            The weights that the model has, by name:

            - "cross" (B, heads, T, S): row t is used to predict the token after tgt_in[t].
            - "encoder" (B, D, S, S), self-attention of the encoder in D directions.
            - "decoder" (B, 1, T, T), self-attention of the decoder.

            A row of self-attention is all 0 where no state came before.
        """
        encoded = self.encoder(src, src_mask)
        check_target(src, tgt_in)
        decoded = self.decoder(tgt_in, self.decoder.remember(encoded))
        cross = None if decoded.attention is None else decoded.attention.weights
        weights_by_name = {
            "encoder": encoded.self_attention,
            "decoder": decoded.self_attention,
            "cross": cross,
        }
        return {name: weights for name, weights in weights_by_name.items() if weights is not None}

    def _dropout(self, readout: Tensor) -> Tensor:
        return dropout(readout, self.config.dropout, self.training)
