"""The encoder, the recurrent translation model (``compare.protocol.EncoderDecoder``) and language model.

Shapes: B sentences, K hypotheses per sentence, S source and T target positions, L layers, D directions (1 or
2) or size of the readout, E size of an encoder state (all directions together), V target vocabulary. Masks
are True for real tokens; padding is on the right.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import Source
from .cells import MIN_CELLS, LayerNormLSTMCell, MinCell, reversal_index
from .config import RecurrentLanguageModelConfig, Seq2SeqConfig
from .decoder import Decoder, EncoderOutput, Memory, SelfAttention, State
from .normalisers import Choices
from .stack import Packing, RecurrentStack, embed_tokens

READS_FORWARD = {"both": (True, False), "forward": (True,), "backward": (False,), "both-bottom": (True,)}
"""By ``Seq2SeqConfig.direction``: for each direction of the top layer, whether it reads from the left."""


def initialise_weights(module: nn.Module) -> None:
    """Initialise the parameters of one module in place; use it as ``model.apply(initialise_weights)``.

    - Matrices are Xavier-uniform (Glorot and Bengio 2010, eq. 16), those of recurrent cells gate by gate.
    - Recurrent matrices are orthogonal (Saxe et al. 2014).
    - Embeddings are uniform in [-0.1, 0.1] (Luong et al. 2015, section 4.1).
    - Biases are 0, but the forget bias of an LSTM is 1, so that it remembers from the start (Jozefowicz et
      al. 2015).
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
            if not name.startswith("gain") and name != "bias_c":  # gains are 1 and this bias is 0 already
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
        super().__init__()
        self.directions = directions
        self.parts = nn.ModuleList(SelfAttention(size) for _ in directions)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within each direction; states (B, S, E) give states (B, S, E) and weights (B, D, S, S)."""
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
    """A recurrence over the source, in one or both directions: Bahdanau et al. 2015, appendix A.2.1.

    Direction "backward" reads the source from its end (Sutskever et al. 2014, section 3.3). With
    self-attention, the states are those of ``SelfAttention``, while the summary is still that of the
    recurrence.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int) -> None:
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
        self.self_attention = EncoderSelfAttention(size, directions) if attends else None

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> EncoderOutput:
        """Read src (B, S), padded on the right; arguments as for ``Seq2Seq.features``.

        The summary is, layer by layer, the final h and then the final c of an LSTM, its directions
        concatenated; with direction "both-bottom" the bottom layer's are those of the direction from the
        right.
        """
        mask = real_tokens(src, src_mask)
        lengths = mask.sum(1)
        if self.reverse:
            src = src.gather(1, reversal_index(lengths, src.size(1)))
        embedded = embed_tokens(self.embedding, src, self.config, self.training, time_dim=1)
        if self.config.cell in MIN_CELLS:  # minGRU and minLSTM scan padded tensors
            outputs, final = self.rnn(embedded.transpose(0, 1), lengths=lengths)
            states = outputs.transpose(0, 1).where(mask.unsqueeze(2), 0)
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
        if self.self_attention is None:
            return EncoderOutput(states, mask, summary)
        states, weights = self.self_attention(states, mask)
        return EncoderOutput(states, mask, summary, weights)


MASK_RULE = (
    "src_mask must be 1 or True at the real tokens of a sentence, one at least, then 0 or False: pad on the "
    "right; pass `~mask` if True marks padding (nn.MultiheadAttention), `mask == 0` for an additive mask"
)


def real_tokens(src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Return the source mask (B, S) as bool, True for None; raise a ValueError if it would be misread.

    Padding must be on the right, and each sentence of src (B, S) must have a real token. Values are checked
    on a CPU, and on CUDA by a device-side assertion; inside ``torch.compile`` only the shape is checked.
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
    """Raise a ValueError unless ``tgt_in`` (B, T) has tokens, and as many sentences as src (B, S)."""
    if tgt_in.size(1) == 0:
        raise ValueError("tgt_in must have a token, BOS")
    if tgt_in.size(0) != src.size(0):
        raise ValueError(f"tgt_in has {tgt_in.size(0)} sentences, but src has {src.size(0)}")


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    # A FakeTensor has no values.
    is_real = mask.device.type in ("cpu", "cuda") and type(mask) is Tensor
    return is_real and not torch.compiler.is_compiling()


class Features(NamedTuple):
    """Outputs of a model that the loss is computed from."""

    hidden: Tensor
    choices: Choices | None = None
    """The sampled positions; only with normaliser "reinforce" in training."""


class Seq2Seq(nn.Module):
    """A recurrent encoder-decoder with or without attention (Bahdanau et al. 2015, Luong et al. 2015).

    Special token ids have no meaning to the model. Padding of the target needs no mask, because a decoder
    state depends on earlier tokens only; the loss must ignore it.

    Example::

        model = Seq2Seq(Seq2SeqConfig(hidden_size=64), src_vocabulary=1000, tgt_vocabulary=1000)
        logits = model(src, src_mask, tgt_in)  # (B, T, V) from (B, S), (B, S) and (B, T)
    """

    def __init__(self, config: Seq2SeqConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        """Create a model with initial weights.

        A ValueError says that all embeddings are tied, but the numbers of source and target token ids differ.
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
        """Compute the logits (B, T, V) of the token after each position; arguments as for ``features``."""
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
            src_lengths: number of real source tokens per sentence, on the CPU, (B,). None reads them from the
                mask, which waits for a GPU.

        Raises:
            ValueError: ``src_mask`` is not such a mask, or ``tgt_in`` has another number of sentences.
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
        """Return the state before the first token of ``beam`` hypotheses; it needs no ``capacity``."""
        return self.decoder.init_state(memory, beam)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K), one per hypothesis; returns the next logits (B, K, V) and the next state."""
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of a whole target by name; arguments as for ``features``.

        "cross" is (B, heads, T, S), its row t being used to predict the token after tgt_in[t]; self-attention
        is "encoder" (B, D, S, S) and "decoder" (B, 1, T, T), in rows of 0 where no state came before.
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

    With LSTM layers and dropout outside the recurrence it is the model of Zaremba et al. 2014.

    Example::

        model = RecurrentLanguageModel(RecurrentLanguageModelConfig(), vocabulary=1000)
        logits = model(tokens)  # (B, T, V) from (B, T); position t predicts the token after tokens[t]
    """

    def __init__(self, config: RecurrentLanguageModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, decoder = config, config.decoder
        self.decoder = Decoder(decoder, vocabulary, value_size=0, summary_size=decoder.start_size)
        self.output = nn.Linear(decoder.output_size, vocabulary)
        self.apply(initialise_weights)
        if config.tie != "none":
            self.output.weight = self.decoder.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position of tokens (B, T)."""
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
        weight, config = self.decoder.embedding.weight, self.decoder.config
        nothing = weight.new_zeros(sentences, 0, 0)
        start = weight.new_zeros(sentences, config.num_layers, config.start_size // config.num_layers)
        return Memory(Source(nothing, nothing, nothing.new_zeros(sentences, 0).bool()), start)
