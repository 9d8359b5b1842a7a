"""Parts of the recurrent models, each by itself: self-attention, readout, encoder, decoder, tied weights."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from seq2seq import Decoder, Encoder, EncoderOutput, SelfAttention, Seq2Seq, Seq2SeqConfig
from seq2seq.attention import EncoderSelfAttention
from seq2seq.decoder import Readout
from seq2seq.fast import reversal_index
from tests.kits.seq2seq import MASK, MODELS, SRC, TGT, V, before, close, double, make

# --- self-attention and readout ---------------------------------------------------------------------------


def test_self_attention_matches_hand_computation() -> None:
    """States of size 1 and W = (1, 1): the combined states have a closed form."""
    self_attention = SelfAttention(1).double()
    nn.init.ones_(self_attention.join.weight)
    a, b, c = 0.3, -0.7, 1.1
    states = torch.tensor([[a], [b], [c]], dtype=torch.float64)
    combined, weights = self_attention(states, states, torch.ones(3, 3, dtype=torch.bool).tril(-1))
    p = math.exp(a * c) / (math.exp(a * c) + math.exp(b * c))
    close(weights, torch.tensor([[0, 0, 0], [1, 0, 0], [p, 1 - p, 0]], dtype=torch.float64))
    expected = torch.tensor([a, b + a, c + p * a + (1 - p) * b], dtype=torch.float64).tanh()
    close(combined[:, 0], expected)


def test_gradients_of_self_attention() -> None:
    """Includes states that may attend to nothing: the first of each direction and the padding."""
    module, mask = EncoderSelfAttention(2, (True, False)).double(), torch.arange(3) < torch.tensor([[3], [1]])
    inputs = (double(2, 3, 4), *module.parameters())
    assert torch.autograd.gradcheck(lambda states, *_: module(states, mask), inputs)


@pytest.mark.parametrize("direction", ["both", "forward", "backward"])
def test_encoder_self_attention_covers_what_each_direction_has_read(direction: str) -> None:
    weights = make("own-encoder", direction=direction).attention(SRC, MASK, TGT)["encoder"]
    directions = {"both": [0, 1], "forward": [0], "backward": [1]}[direction]
    position = torch.arange(6)
    before = torch.stack((position < position.unsqueeze(1), position > position.unsqueeze(1)))[directions]
    visible = before & (MASK.unsqueeze(1) & MASK.unsqueeze(2)).unsqueeze(1)
    assert torch.equal(weights > 0, visible)
    close(weights.sum(-1), visible.any(-1).double())


@pytest.mark.parametrize("name", ["own-before", "own-feed", "own-after", "own-decoder"])
def test_decoder_self_attention_covers_the_earlier_steps(name: str) -> None:
    weights = make(name).attention(SRC, MASK, TGT)["decoder"]
    assert weights.shape == (4, 1, 5, 5)
    assert torch.equal(weights > 0, torch.ones(4, 1, 5, 5).tril(-1) > 0)
    close(weights.sum(-1), torch.tensor([0.0, 1, 1, 1, 1]).double().expand(4, 1, -1))


def test_maxout_keeps_the_larger_of_each_pair_of_neighbours() -> None:
    """Pairs of x and -x: the larger one is |x|."""
    readout = Readout(2, 2, maxout=True).double()
    with torch.no_grad():
        readout.weight.copy_(torch.tensor([[1, 0], [-1, 0], [0, 2], [0, -2]]))
        readout.bias.zero_()
    x = torch.tensor([[3.0, -5.0], [-0.5, 0.25]], dtype=torch.float64)
    close(readout(x), x.abs() * torch.tensor([1, 2]))
    assert torch.autograd.gradcheck(readout, double(3, 2))


# --- the parts, each by itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "heads-feed", "own-both", "static-before"])
def test_a_decoder_accepts_any_encoder_output(name: str) -> None:
    """States of size 10 and a summary of 7, as of another package; stepping still equals the full pass."""
    config = Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 8, **MODELS[name]})
    decoder = Decoder(config, V, value_size=10, summary_size=7).double().eval()
    memory = decoder.remember(EncoderOutput(double(4, 6, 10), MASK, double(4, 7)))
    full, state = decoder(TGT, memory), decoder.init_state(memory, beam=1)
    assert full.readout.shape == (4, 5, config.output_size)
    assert full.attention.weights.shape == (4, config.attention.num_heads, 5, 6)
    for t in range(5):
        readout, state = decoder.step(TGT[:, t : t + 1], state, memory)
        close(readout[:, 0], full.readout[:, t])


def test_an_encoder_states_its_output_sizes() -> None:
    config = Seq2SeqConfig(embedding_size=6, hidden_size=8, encoder_size=10, num_layers=3)
    encoder = Encoder(config, V).eval()
    states, _, summary, self_attention = encoder(SRC, MASK)
    assert states.shape == (4, 6, encoder.state_size) == (4, 6, 10)
    assert summary.shape == (4, encoder.summary_size) == (4, 3 * 2 * 10)
    assert self_attention is None


def test_reversal_reverses_real_tokens_only() -> None:
    expected = [[2, 1, 0, 3], [0, 1, 2, 3], [3, 2, 1, 0]]
    assert reversal_index(torch.tensor([3, 1, 4]), 4).tolist() == expected


def test_weights_of_a_reversed_encoder_are_in_source_order() -> None:
    """A palindrome is the same from both ends; other sentences are not."""
    forward, backward = make("bahdanau", direction="forward"), make("bahdanau", direction="backward")
    palindrome = torch.tensor([[1, 4, 7, 4, 1]])
    mask = torch.ones(1, 5, dtype=torch.bool)
    close(backward(palindrome, mask, TGT[:1]), forward(palindrome, mask, TGT[:1]))
    weights = [m.attention(palindrome, mask, TGT[:1])["cross"] for m in (forward, backward)]
    close(weights[1], weights[0].flip(-1))
    assert (backward(SRC, MASK, TGT) - forward(SRC, MASK, TGT)).abs().max() > 1e-3


def test_the_decoder_starts_from_the_bridge() -> None:
    model = make("bahdanau", num_layers=2)
    encoded = model.encoder(SRC, MASK)
    state = model.init_state(model.encode(SRC, MASK), beam=3, capacity=9)
    expected = torch.tanh(encoded.summary @ model.decoder.bridge.weight.t() + model.decoder.bridge.bias)
    expected = expected.view(4, 1, 2, 2, 8).expand(-1, 3, -1, -1, -1)  # (B, K, L, (h, c), H)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    close(state.feedback, expected[:, :, 1, 0])
    assert torch.equal(state.position, torch.zeros(4, 3, dtype=torch.long))
    assert state.past.shape == (4, 3, 0, 8)


@pytest.mark.parametrize("name", ["bahdanau", "lstm"])
def test_the_default_start_is_written_out_by_its_name(name: str) -> None:
    """Same weights from the same seed, and the same logits, as with no setting."""
    start = {"bahdanau": "bridge", "lstm": "last"}[name]
    default, explicit = make(name), make(name, decoder_start=start)
    assert default.state_dict().keys() == explicit.state_dict().keys()
    assert torch.equal(default(SRC, MASK, TGT), explicit(SRC, MASK, TGT))


def test_with_attention_the_decoder_may_start_from_the_encoders_final_states() -> None:
    model = make("bahdanau-last")
    expected = model.encoder(SRC, MASK).summary.view(4, 1, 1, 2, 8)  # (B, K, L, (h, c), H)
    state = model.init_state(model.encode(SRC, MASK), beam=1, capacity=9)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    close(state.feedback, expected[:, :, 0, 0])  # the first query
    assert model.decoder.bridge is None


@pytest.mark.parametrize("name", ["bahdanau-zeros", "luong-zeros"])
def test_a_decoder_that_starts_from_zeros_has_no_layer_for_its_start(name: str) -> None:
    model = make(name)
    state = model.init_state(model.encode(SRC, MASK), beam=2, capacity=9)
    for part in (state.h, state.c, state.feedback):
        assert not part.any()
    assert model.decoder.bridge is None


@pytest.mark.parametrize("start", ["last", "bridge"])
def test_models_of_one_start_differ_in_attention_alone(start: str) -> None:
    """A model whose context has no effect equals the one without attention that has its other weights."""
    attending, plain = make("bahdanau", decoder_start=start), make("lstm", decoder_start=start)
    weights, embedding, size = attending.state_dict(), 6, 8
    rnn, readout = "decoder.rnn.plain.weight_ih_l0", "decoder.readout.weight"
    weights[rnn][:, embedding:] = 0  # [y; c]
    weights[readout][:, size : 2 * size] = 0  # [s; c; y]
    without = {name: weight for name, weight in weights.items() if not name.startswith("decoder.attention")}
    without[rnn] = weights[rnn][:, :embedding]
    without[readout] = torch.cat((weights[readout][:, :size], weights[readout][:, 2 * size :]), dim=1)
    plain.load_state_dict(without)
    close(plain(SRC, MASK, TGT), attending(SRC, MASK, TGT))


def test_without_attention_the_decoder_starts_from_the_encoders_final_states() -> None:
    """No layer in between: all information on the source passes through these states."""
    model = make("lstm", num_layers=2)
    expected = model.encoder(SRC, MASK).summary.view(4, 1, 2, 2, 8)  # (B, K, L, (h, c), H)
    state = model.init_state(model.encode(SRC, MASK), beam=1, capacity=9)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    assert state.feedback.shape == (4, 1, 0)
    assert model.decoder.bridge is None


def test_a_state_counts_its_tokens() -> None:
    model = make("static-before")
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=2, capacity=3)
    for t in range(3):
        assert torch.equal(state.position, torch.full((4, 2), t))
        _, state = model.step(TGT[:, :2], state, memory)


# --- tying and configuration ------------------------------------------------------------------------------


def test_tied_weights_are_one_parameter() -> None:
    def weights(**changes: Any) -> tuple[int, int]:
        model = Seq2Seq(Seq2SeqConfig(embedding_size=6, hidden_size=8, **changes), V, V)
        matrices = (model.encoder.embedding.weight, model.decoder.embedding.weight, model.output.weight)
        return len({id(weight) for weight in matrices}), model.output.in_features

    assert weights(tie="none") == (3, 8)
    assert weights(tie="none", readout="maxout") == (3, 4)
    assert weights(tie="output") == weights(tie="output", readout="maxout") == (2, 6)
    assert weights(tie="all") == (1, 6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Seq2Seq(Seq2SeqConfig(tie="all"), 11, 12),
            r'tie "all" needs one vocabulary .* 11 source and 12 target',
        ),
        (  # a decoder for the encoder of another package
            lambda: Decoder(Seq2SeqConfig(attention=before("dot"), hidden_size=8), V, 10, 10),
            r'"dot" needs .* got 8 and 10: use "general"',
        ),
        (
            lambda: Decoder(Seq2SeqConfig(attention=None, hidden_size=8, num_layers=2), V, 10, 10),
            r"it must be 32 wide \(the states of 2 layers\), got 10",
        ),
        (
            lambda: Decoder(Seq2SeqConfig(decoder_start="last", cell="gru", hidden_size=8), V, 8, 16),
            r"it must be 8 wide \(the states of 1 layers\), got 16",
        ),
    ],
)
def test_parts_that_do_not_fit_together_raise(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
