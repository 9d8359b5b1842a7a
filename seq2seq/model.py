"""The encoder, the recurrent translation model (``compare.protocol.EncoderDecoder``) and language model.

Shapes: B sentences, K hypotheses per sentence, S source and T target positions, L layers, D directions (1 or
2) or size of the readout, E size of an encoder state (all directions together), V target vocabulary. Masks
are True for real tokens; padding is on the right.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import Source
from .cells import MIN_CELLS, LayerNormLSTMCell, MinCell
from .config import RecurrentLanguageModelConfig, Seq2SeqConfig
from .decoder import Decoder, EncoderOutput, Memory, SelfAttention, State
from .min_rnn import Padding, reversal_index
from .normalisers import Choices
from .stack import Packing, RecurrentStack, embed_tokens

READS_FORWARD = {"both": (True, False), "forward": (True,), "backward": (False,), "both-bottom": (True,)}
"""By ``Seq2SeqConfig.direction``: for each direction of the top layer, whether it reads from the left."""


def initialise_weights(module: nn.Module) -> None:
    """Initialise the parameters of one module in place; use it as ``model.apply(initialise_weights)``.

    - Matrices are Xavier-uniform (Glorot and Bengio 2010, eq. 16).
    - Recurrent matrices are orthogonal (Saxe et al. 2014).
    - The matrices of recurrent cells are initialised gate by gate, since each gate is a layer of its own.
    - Embeddings are uniform in [-0.1, 0.1] (Luong et al. 2015, section 4.1).
    - Biases are 0, except that the forget bias of an LSTM is 1, so that it remembers from the start
      (Jozefowicz et al. 2015).

    Args:
        module: an ``nn.Embedding``, ``nn.Linear``, ``nn.Conv1d`` or recurrent layer of torch; all others
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
        gates = module.gates if isinstance(module, MinCell) else "ifgo"
        if isinstance(module, nn.GRU | nn.RNN):
            gates = "rzn" if isinstance(module, nn.GRU) else "h"
        for name, parameter in module.named_parameters():
            if not name.startswith("gain") and name != "bias_c":  # which are 1 and 0 from the start
                for gate, block in zip(gates, parameter.detach().chunk(len(gates)), strict=True):
                    _initialise_gate(name, block, is_forget_gate=gate == "f")


def _initialise_gate(name: str, block: Tensor, is_forget_gate: bool) -> None:
    if name.startswith("weight_ih"):
        nn.init.xavier_uniform_(block)
    elif name.startswith("weight_hh"):
        nn.init.orthogonal_(block)
    else:  # torch adds two biases, bias_ih and bias_hh: only one of them gets the 1
        nn.init.constant_(block, 1.0 if is_forget_gate and name.startswith("bias_ih") else 0.0)


class EncoderSelfAttention(nn.Module):
    """One ``SelfAttention`` per direction of an encoder, each over what this direction has read before."""

    def __init__(self, size: int, directions: tuple[bool, ...]) -> None:
        """Create one self-attention per direction.

        Args:
            size: H, the size of a state of one direction.
            directions: for each direction, whether it reads from left to right.
        """
        super().__init__()
        self.directions = directions
        self.parts = nn.ModuleList(SelfAttention(size) for _ in directions)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within each direction.

        Args:
            states: encoder states in source order, the directions concatenated, (B, S, D * H).
            mask: True for real tokens, (B, S).

        Returns:
            The combined states (B, S, D * H), which are 0 in the padding as ``states`` are, and the weights
            (B, D, S, S).
        """
        both_real = mask.unsqueeze(1) & mask.unsqueeze(2)  # (B, S, S)
        outputs = [
            part(half, half, both_real.tril(-1) if forward else both_real.triu(1))
            for part, half, forward in zip(
                self.parts, states.chunk(len(self.parts), dim=-1), self.directions, strict=True
            )
        ]
        combined, weights = zip(*outputs, strict=True)
        return torch.cat(combined, dim=-1), torch.stack(weights, dim=1)


class Encoder(nn.Module):
    """An LSTM or GRU over the source, in one or both directions: Bahdanau et al. 2015, appendix A.2.1.

    It never reads padding. Direction "backward" reads the source from its end (Sutskever et al. 2014, section
    3.3). With self-attention, the states are those that ``SelfAttention`` returns, while the summary is still
    that of the recurrence.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int) -> None:
        """Create an encoder.

        Args:
            config: cell, sizes, direction, dropout and self-attention.
            vocabulary: number of source token ids.
        """
        super().__init__()
        directions = READS_FORWARD[config.direction]
        size = config.states_size // len(directions)
        self.config, self.reverse = config, config.direction == "backward"
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.rnn = RecurrentStack(
            config,
            config.embedding_size,
            size,
            bidirectional=len(directions) == 2,
            num_layers=config.encoder_depth,
            both_at_bottom=config.direction == "both-bottom",
        )
        attends = config.self_attention in ("encoder", "both")
        self.own = EncoderSelfAttention(size, directions) if attends else None

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> EncoderOutput:
        """Read the source sentences.

        Args:
            src: token ids, padded on the right, (B, S).
            src_mask: True or 1 for real tokens, at least one per sentence, (B, S); None: all are real.
            src_lengths: number of real tokens of each sentence, on the CPU, (B,). None reads them from the
                mask, which waits for a GPU.

        Returns:
            States (B, S, E), 0 in the padding, and the summary, (B, ``config.summary_size``). The summary is,
            layer by layer, the final h and then the final c of an LSTM, its directions concatenated; with
            direction "both-bottom" the bottom layer's are those of the direction from the right.

        Raises:
            ValueError: ``src_mask`` is not such a mask.
        """
        mask = real_tokens(src, src_mask)
        lengths = mask.sum(1)
        if self.reverse:
            src = src.gather(1, reversal_index(lengths, src.size(1)))
        embedded = embed_tokens(self.embedding, src, self.config, self.training, time_dim=1)
        if self.config.cell in MIN_CELLS:  # minGRU and minLSTM scan padded tensors
            layout: Packing | Padding = Padding(lengths)
        else:
            on_host = lengths.cpu() if src_lengths is None else src_lengths
            layout = Packing(on_host, src.size(1), src.device)
        outputs, final = self.rnn(layout.pack(embedded))
        states = layout.unpack(outputs, src.size(1))
        if self.reverse:
            states = states.gather(1, reversal_index(lengths, src.size(1)).unsqueeze(2).expand_as(states))
        # From final states (L * D, B, E / D) to (B, L, E), the directions concatenated.
        by_layer = [part.unflatten(0, (len(self.rnn.layers), -1)).permute(2, 0, 1, 3) for part in final]
        summary = torch.cat([part.flatten(2) for part in by_layer], dim=2).flatten(1)
        if self.own is None:
            return EncoderOutput(states, mask, summary)
        states, weights = self.own(states, mask)
        return EncoderOutput(states, mask, summary, weights)


MASK_RULE = (
    "src_mask must be 1 or True at the real tokens of a sentence, one at least, then 0 or False: pad on the "
    "right; pass `~mask` if True marks padding (nn.MultiheadAttention), `mask == 0` for an additive mask"
)


def real_tokens(src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Return the source mask as bool; reject masks that the model would misread.

    Values are checked on a CPU, and on CUDA by a device-side assertion, which does not wait for the device.
    Inside ``torch.compile`` only the shape is checked.

    Args:
        src: token ids, (B, S).
        src_mask: True or 1 at real tokens, which come first, at least one per sentence, (B, S). None means
            that all tokens are real.

    Returns:
        The mask, bool, (B, S); ``src_mask`` itself if it is bool.

    Raises:
        ValueError: src is empty, or the mask has another shape, values other than 0 and 1, padding before a
            real token, or a sentence without real tokens.
    """
    if 0 in src.shape:
        raise ValueError(f"src must have a sentence and a token, got the shape {tuple(src.shape)}")
    if src_mask is None:
        return torch.ones_like(src, dtype=torch.bool)
    if src_mask.shape != src.shape:
        shapes = f"{tuple(src.shape)}: got {tuple(src_mask.shape)}"
        raise ValueError(f"src_mask must have the shape of src, {shapes}")
    real = src_mask if src_mask.dtype == torch.bool else src_mask == 1
    if has_checkable_values(src_mask):
        is_right = (real[:, :-1] >= real[:, 1:]).all() & real[:, 0].all() & (real == src_mask).all()
        if src_mask.is_cuda:
            torch._assert_async(is_right, MASK_RULE)
        elif not is_right:
            raise ValueError(MASK_RULE)
    return real


def check_target(src: Tensor, tgt_in: Tensor) -> None:
    """Raise a ValueError unless ``tgt_in`` (B, T) is of the sentences of src (B, S)."""
    if tgt_in.size(1) == 0:
        raise ValueError("tgt_in must have a token, BOS")
    if tgt_in.size(0) != src.size(0):
        raise ValueError(f"tgt_in is of {tgt_in.size(0)} sentences, but src of {src.size(0)}")


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    # A FakeTensor has no values.
    is_real = mask.device.type in ("cpu", "cuda") and type(mask) is Tensor
    return is_real and not torch.compiler.is_compiling()


class Features(NamedTuple):
    """Outputs of a model that the loss is computed from."""

    hidden: Tensor
    """Input of the output layer, (B, T, D)."""
    choices: Choices | None = None
    """The sampled positions; only with normaliser "reinforce" in training."""


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
        self.decoder = Decoder(config, tgt_vocabulary, config.states_size, config.summary_size)
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
        hidden, attention, _ = self.decoder(tgt_in, memory)
        choices = None if attention is None else attention.choices
        if choices is not None and self.decoder.attention is not None:
            choices = choices._replace(average=self.decoder.attention.normaliser.average)
        return Features(hidden, choices)

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
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state

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
        named = {"encoder": encoded.self_attention, "decoder": decoded.self_attention}
        if decoded.attention is not None:
            named["cross"] = decoded.attention.weights
        return {name: weights for name, weights in named.items() if weights is not None}


class RecurrentLanguageModel(nn.Module):
    """p(x) = prod_t softmax(W h(t) + b)_x(t+1), h(t) = cell(x(t), h(t-1)), h(0) = 0 (Mikolov et al. 2010).

    With LSTM layers and dropout outside the recurrence it is the model of Zaremba et al. 2014. Each text
    starts from a state of zeros: sentences are independent of each other.

    Examples:
        >>> model = RecurrentLanguageModel(RecurrentLanguageModelConfig(), vocabulary=1000)
        >>> logits = model(tokens)  # (B, T, V) from (B, T); position t predicts the token after tokens[t]
    """

    def __init__(self, config: RecurrentLanguageModelConfig, vocabulary: int) -> None:
        """Create a model with initial weights; ``vocabulary`` is the number of token ids, V."""
        super().__init__()
        self.config, decoder = config, config.decoder
        self.decoder = Decoder(decoder, vocabulary, value_size=0, summary_size=decoder.start_size)
        self.output = nn.Linear(decoder.output_size, vocabulary)
        self.apply(initialise_weights)
        if config.tie != "none":
            self.output.weight = self.decoder.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position of tokens (B, T).

        Position t depends on tokens 0 to t, so padding on the right needs no mask.
        """
        logits: Tensor = self.output(self.states(tokens))
        return logits

    def states(self, tokens: Tensor) -> Tensor:
        """Compute the input of ``output`` at all positions of tokens (B, T): (B, T, D)."""
        hidden: Tensor = self.decoder(tokens, self._memory(tokens.size(0))).readout
        return hidden

    def attention(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the attention weights by name: none, as an RNN has no attention."""
        return {}

    def init_state(self, sentences: int, beam: int, capacity: int) -> State:
        """Build the state before the first token of K = ``beam`` hypotheses of each text: zeros."""
        return self.decoder.init_state(self._memory(sentences), beam)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed tokens (B, K), one per hypothesis; returns the next logits (B, K, V) and the next state."""
        hidden, state = self.decoder.step(tokens, state, self._memory(tokens.size(0)))
        return self.output(hidden), state

    def _memory(self, sentences: int) -> Memory:
        """Return what a decoder without attention reads of a source: a first state, here of zeros."""
        weight, config = self.decoder.embedding.weight, self.decoder.config
        nothing = weight.new_zeros(sentences, 0, 0)
        start = weight.new_zeros(sentences, config.num_layers, config.start_size // config.num_layers)
        return Memory(Source(nothing, nothing, nothing.new_zeros(sentences, 0).bool()), start)
