"""The recurrent room: against torch's modules, a twin one vector at a time, hand computation and invariances.

Scores, scopes and normalisers have a file of their own; here an attention is a part that is put in its place.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder, keep, select
from seq2seq import (
    AttentionConfig,
    Decoder,
    Encoded,
    Encoder,
    SelfAttention,
    Seq2Seq,
    Seq2SeqConfig,
)
from seq2seq.encoder import reversal
from seq2seq.readout import Readout
from seq2seq.self_attention import EncoderSelfAttention
from tests.recurrent_twin import read, write

V = 11  # vocabulary
LENGTHS = torch.tensor([6, 2, 4, 1])
MASK = torch.arange(6) < LENGTHS.unsqueeze(1)
SRC = torch.randint(V, (4, 6), generator=torch.Generator().manual_seed(1))
TGT = torch.randint(V, (4, 5), generator=torch.Generator().manual_seed(2))


def before(score: str = "additive", **changes: Any) -> AttentionConfig:
    return AttentionConfig(score=score, placement="before", **changes)


def after(score: str = "general", **changes: Any) -> AttentionConfig:
    return AttentionConfig(score=score, placement="after", **changes)


def feeding(score: str = "general", **changes: Any) -> AttentionConfig:
    return after(score, input_feeding=True, **changes)


MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"attention": None},
    "lstm-reversed": {"attention": None, "direction": "backward", "num_layers": 2, "tie": "output"},
    "gru-forward": {"attention": None, "cell": "gru", "direction": "forward"},
    "lstm-summary": {"attention": None, "feed_summary": True, "num_layers": 2, "readout": "maxout"},
    "gru-summary": {"attention": None, "feed_summary": True, "cell": "gru", "tie": "all"},
    "bahdanau": {"attention": before()},
    "bahdanau-gru": {"attention": before(), "cell": "gru", "num_layers": 2, "tie": "all"},
    "bahdanau-maxout": {"attention": before(), "cell": "gru", "readout": "maxout", "tie": "output"},
    "dot-before": {"attention": before("dot")},
    "luong-general": {"attention": after(), "num_layers": 2},
    "luong-dot-feed": {"attention": feeding("dot"), "direction": "backward"},
    "luong-concat-feed": {"attention": feeding("concat"), "cell": "gru", "num_layers": 2, "tie": "output"},
    "luong-maxout-feed": {"attention": feeding(), "readout": "maxout"},
    "heads-before": {"attention": before("scaled-dot", num_heads=2, attention_size=6), "cell": "gru"},
    "heads-after": {"attention": after("scaled-dot", num_heads=2, attention_size=6), "encoder_size": 6},
    "heads-feed": {"attention": feeding("scaled-dot", num_heads=4), "direction": "forward"},
    "location-feed": {"attention": feeding("location", max_source=4)},
    "static-before": {"attention": before("static", max_source=4, max_target=3)},
    "static-factorised": {"attention": after("static-factorised", attention_size=3), "cell": "gru"},
    "dynamic-feed": {"attention": feeding("dynamic-factorised", attention_size=3), "encoder_size": 10},
    "local-m-after": {"attention": after(scope="local-m", window=1)},
    "local-m-before": {"attention": before(scope="local-m", window=1), "cell": "gru"},
    "local-p-feed": {"attention": feeding(scope="local-p", window=2)},
    "hard-before": {"attention": before(normaliser="straight-through")},
    "reinforce-before": {"attention": before(normaliser="reinforce"), "cell": "gru"},
    "reinforce-after": {"attention": after(normaliser="reinforce")},
    "reinforce-feed": {"attention": feeding("scaled-dot", normaliser="reinforce", num_heads=2)},
    "deep-lstm": {"attention": None, "num_layers": 3, "direction": "backward"},
    "deep-before": {"attention": before(), "num_layers": 4},
    "deep-after": {"attention": after(), "num_layers": 4, "cell": "gru"},
    "deep-feed": {"attention": feeding(), "num_layers": 3, "cell": "gru", "direction": "forward"},
    "own-encoder": {"attention": before(), "self_attention": "encoder"},
    "own-encoder-gru": {
        "attention": after(),
        "self_attention": "encoder",
        "cell": "gru",
        "direction": "backward",
    },
    "own-decoder": {"attention": None, "self_attention": "decoder"},
    "own-before": {"attention": before(), "self_attention": "decoder", "cell": "gru"},
    "own-after": {"attention": after(), "self_attention": "decoder", "cell": "gru"},
    "own-feed": {"attention": feeding(), "self_attention": "decoder"},
    "own-both": {"attention": before(), "self_attention": "both", "num_layers": 3, "direction": "forward"},
}
"""Every mechanism with an LSTM and with a GRU, in every place where it meets another."""
SMOOTH = [name for name in MODELS if not name.startswith(("hard", "reinforce"))]
"""Those without a choice, which has no gradient and may be turned over by rounding."""


def feeds_back(attention: AttentionConfig | None) -> bool:
    """Whether a step needs more of the step before than the RNN's own state."""
    return attention is not None and (attention.placement == "before" or attention.input_feeding)


FUSED = [name for name, settings in MODELS.items() if not feeds_back(settings["attention"])]


def make(name: str, **changes: Any) -> Seq2Seq:
    """A small float64 model with weights large enough for every part of it to matter."""
    settings = {"embedding_size": 6, "hidden_size": 8, **MODELS[name], **changes}
    torch.manual_seed(3)
    model = Seq2Seq(Seq2SeqConfig(**settings), V, V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.8, 0.8)
    return model


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return make(request.param)


def close(left: Tensor, right: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def leaves(tree: Any) -> list[Tensor]:
    return [tree] if isinstance(tree, Tensor) else [leaf for part in tree for leaf in leaves(part)]


# --- every model ------------------------------------------------------------------------------------------


def test_a_model_is_the_papers_equations(model: Seq2Seq) -> None:
    logits, found = model(SRC, MASK, TGT), model.attention(SRC, MASK, TGT)
    for row, length in enumerate(LENGTHS):
        expected = write(model, SRC[row, :length], TGT[row])
        close(logits[row], expected.logits)
        assert set(found) == {name for name, weights in expected.attention.items() if weights is not None}
        for name, weights in found.items():
            real = weights[row] if name == "decoder" else weights[row, ..., :length]
            close(real[:, :length] if name == "encoder" else real, expected.attention[name])


def test_the_encoder_is_its_equations(model: Seq2Seq) -> None:
    states, mask, summary, _ = model.encoder(SRC, MASK)
    assert mask is MASK
    assert (states[~MASK] == 0).all()
    assert states.size(2) == model.encoder.state_size
    assert summary.size(1) == model.encoder.summary_size
    for row, length in enumerate(LENGTHS):
        expected = read(model, SRC[row, :length])
        close(states[row, :length], expected.states)
        close(summary[row], torch.cat(expected.summary))


def test_a_model_fits_the_protocol(model: Seq2Seq) -> None:
    assert isinstance(model, EncoderDecoder)
    features = model.features(SRC, MASK, TGT)
    assert features.choice_logp is None
    assert features.value is None
    close(model(SRC, MASK, TGT), model.output(features.hidden))


def test_stepping_gives_the_logits_of_the_full_pass(model: Seq2Seq) -> None:
    full = model(SRC, MASK, TGT)
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=1, capacity=5)
    for t in range(5):
        logits, state = model.step(TGT[:, t : t + 1], state, memory)
        close(logits[:, 0], full[:, t])


def test_more_padding_and_what_stands_in_it_change_nothing(model: Seq2Seq) -> None:
    garbage = torch.randint(V, (4, 9), generator=torch.Generator().manual_seed(4))
    garbage[:, :6] = torch.where(MASK, SRC, garbage[:, :6])
    mask = torch.arange(9) < LENGTHS.unsqueeze(1)
    close(model(garbage, mask, TGT), model(SRC, MASK, TGT))


def test_a_row_does_not_depend_on_its_neighbours(model: Seq2Seq) -> None:
    full = model(SRC, MASK, TGT)
    for row, length in enumerate(LENGTHS):
        alone = model(SRC[row : row + 1, :length], MASK[row : row + 1, :length], TGT[row : row + 1])
        close(alone[0], full[row])
    turned = torch.tensor([2, 0, 3, 1])
    close(model(SRC[turned], MASK[turned], TGT[turned]), full[turned])


def test_hypotheses_of_a_beam_step_as_if_alone(model: Seq2Seq) -> None:
    """Three hypotheses, reordered between the steps, against each history fed again by itself."""
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=3, capacity=4)
    draw = torch.Generator().manual_seed(5)
    history = torch.empty(4, 3, 0, dtype=torch.long)
    for _ in range(4):
        tokens = torch.randint(V, (4, 3), generator=draw)
        parents = torch.randint(3, (4, 3), generator=draw)
        logits, state = model.step(tokens, state, memory)
        assert all(leaf.shape[:2] == (4, 3) for leaf in leaves(state))
        history = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        for k in range(3):
            close(logits[:, k], model(SRC, MASK, history[:, k])[:, -1])
        state, history = select(state, parents), select(history, parents)


def test_finished_sentences_can_leave_memory_and_state(model: Seq2Seq) -> None:
    memory = model.encode(SRC, MASK)
    assert all(len(leaf) == 4 for leaf in leaves(memory))
    _, state = model.step(TGT[:, :2], model.init_state(memory, 2, 3), memory)
    expected, _ = model.step(TGT[:, 2:4], state, memory)
    rows = torch.tensor([3, 1])
    kept, _ = model.step(TGT[rows, 2:4], keep(state, rows), keep(memory, rows))
    close(kept, expected[rows])


@pytest.mark.parametrize("name", SMOOTH)
def test_every_parameter_is_trained_by_right_gradients(name: str) -> None:
    """Against a difference quotient along one random direction through all parameters together."""
    model = make(name)
    parameters = list(model.parameters())
    weight = torch.randn(4, 5, V, dtype=torch.float64)
    (model(SRC, MASK, TGT) * weight).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in parameters)
    direction = [torch.randn_like(p) for p in parameters]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True))
    values = []
    with torch.no_grad():
        for shift in (1e-6, -2e-6):
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=shift)
            values.append(float((model(SRC, MASK, TGT) * weight).sum()))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_one_seed_gives_one_set_of_weights(name: str) -> None:
    config = Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 8, **MODELS[name]})
    made = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        made.append(Seq2Seq(config, V, V).state_dict())
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])
    matrices = [key for key in made[0] if "bias" not in key]
    assert all(not torch.equal(made[0][key], made[2][key]) for key in matrices)


@pytest.mark.parametrize("name", SMOOTH)
def test_bfloat16_autocast_stays_close_to_float32(name: str) -> None:
    model = make(name).float()
    exact = model(SRC, MASK, TGT)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(SRC, MASK, TGT)
        memory = model.encode(SRC, MASK)
        logits, state = model.step(TGT[:, :2], model.init_state(memory, 2, 1), memory)
        model.step(TGT[:, :2], state, memory)
    assert memory.start.dtype == state.c.dtype == torch.float32
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=0.15)
    torch.testing.assert_close(logits[:, 0].float(), exact[:, 0], rtol=0, atol=0.15)
    rounded.float().logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# --- what is computed once --------------------------------------------------------------------------------


class Calls:
    """Counts the calls of modules, by name."""

    def __init__(self, **modules: nn.Module) -> None:
        self.counts = dict.fromkeys(modules, 0)
        for name, module in modules.items():
            module.register_forward_hook(lambda *_, name=name: self.add(name))

    def add(self, name: str) -> None:
        self.counts[name] += 1


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "heads-feed", "own-both", "lstm"])
def test_one_encoder_pass_serves_any_number_of_decodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two targets in full, a greedy search and a wide one: the source is read, and its keys made, once."""
    model, other = make(name), TGT.flip(1)
    expected = [model(SRC, MASK, tgt_in) for tgt_in in (TGT, other)]
    calls, made = Calls(encoder=model.encoder), []
    if model.decoder.attention is not None:
        remember = model.decoder.attention.remember
        monkeypatch.setattr(model.decoder.attention, "remember", lambda *a: made.append(1) or remember(*a))
    memory = model.encode(SRC, MASK)
    for tgt_in, logits in zip((TGT, other), expected, strict=True):
        close(model.output(model.decoder(tgt_in, memory).readout), logits)
    for beam in (1, 4):
        state = model.init_state(memory, beam, 5)
        for t in range(5):
            found, state = model.step(TGT[:, t : t + 1].expand(-1, beam), state, memory)
            close(found, expected[0][:, t : t + 1].expand(-1, beam, -1))
    assert calls.counts == {"encoder": 1}
    assert len(made) == (model.decoder.attention is not None)


@pytest.mark.parametrize("name", MODELS)
def test_what_feeds_nothing_back_runs_all_steps_at_once(name: str) -> None:
    model = make(name)
    decoder = model.decoder
    parts = {"rnn": decoder.rnn, "attention": decoder.attention, "own": decoder.own}
    calls = Calls(**{part: module for part, module in parts.items() if module is not None})
    model(SRC, MASK, TGT)
    times = 1 if name in FUSED else 5
    expected = {"rnn": 1 if name in FUSED else 0, "attention": times, "own": times}
    assert calls.counts == {part: expected[part] for part in calls.counts}


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_path_is_the_loop(name: str) -> None:
    model = make(name)
    memory, decoder = model.encode(SRC, MASK), model.decoder
    known, state = decoder._known(TGT.t(), memory), decoder.init_state(memory, beam=1)
    fused = decoder._fused(known, state, memory)
    looped, _ = decoder._loop(known, state, memory)
    close(fused.readout, looped.readout)
    for left, right in ((fused.own, looped.own), (fused.attended, looped.attended)):
        assert (left is None) == (right is None)
    if fused.own is not None:
        close(fused.own, looped.own)
    if fused.attended is not None:
        close(fused.attended.weights, looped.attended.weights)
        close(fused.attended.context, looped.attended.context)


# --- self-attention and readout ---------------------------------------------------------------------------


def test_self_attention_matches_hand_computation() -> None:
    """States of one number and W = (1, 1): the joined states have a closed form."""
    own = SelfAttention(1).double()
    nn.init.ones_(own.join.weight)
    a, b, c = 0.3, -0.7, 1.1
    states = torch.tensor([[a], [b], [c]], dtype=torch.float64)
    joined, weights = own(states, states, torch.ones(3, 3, dtype=torch.bool).tril(-1))
    p = math.exp(a * c) / (math.exp(a * c) + math.exp(b * c))
    close(weights, torch.tensor([[0, 0, 0], [1, 0, 0], [p, 1 - p, 0]], dtype=torch.float64))
    expected = torch.tensor([a, b + a, c + p * a + (1 - p) * b], dtype=torch.float64).tanh()
    close(joined[:, 0], expected)


def test_gradients_of_self_attention() -> None:
    """Rows that see nothing, as the first of each and the padding, included."""
    own, mask = EncoderSelfAttention(2, (True, False)).double(), torch.arange(3) < torch.tensor([[3], [1]])
    assert torch.autograd.gradcheck(
        lambda states, *_: own(states, mask), (double(2, 3, 4), *own.parameters())
    )


@pytest.mark.parametrize("direction", ["both", "forward", "backward"])
def test_an_encoder_looks_at_what_each_direction_has_read(direction: str) -> None:
    weights = make("own-encoder", direction=direction).attention(SRC, MASK, TGT)["encoder"]
    ways = {"both": [0, 1], "forward": [0], "backward": [1]}[direction]
    place = torch.arange(6)
    read_before = torch.stack((place < place.unsqueeze(1), place > place.unsqueeze(1)))[ways]
    seen = read_before & (MASK.unsqueeze(1) & MASK.unsqueeze(2)).unsqueeze(1)
    assert torch.equal(weights > 0, seen)
    close(weights.sum(-1), seen.any(-1).double())


@pytest.mark.parametrize("name", ["own-before", "own-feed", "own-after", "own-decoder"])
def test_a_decoder_looks_at_its_earlier_steps(name: str) -> None:
    weights = make(name).attention(SRC, MASK, TGT)["decoder"]
    assert weights.shape == (4, 1, 5, 5)
    assert torch.equal(weights > 0, torch.ones(4, 1, 5, 5).tril(-1) > 0)
    close(weights.sum(-1), torch.tensor([0.0, 1, 1, 1, 1]).double().expand(4, 1, -1))


def test_maxout_keeps_the_larger_of_each_pair_of_neighbours() -> None:
    """Pairs of x and -x: what is kept is |x|."""
    readout = Readout(2, 2, maxout=True).double()
    with torch.no_grad():
        readout.weight.copy_(torch.tensor([[1, 0], [-1, 0], [0, 2], [0, -2]]))
        readout.bias.zero_()
    x = torch.tensor([[3.0, -5.0], [-0.5, 0.25]], dtype=torch.float64)
    close(readout(x), x.abs() * torch.tensor([1, 2]))
    assert torch.autograd.gradcheck(readout, double(3, 2))


# --- hard attention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reinforce-before", "reinforce-after", "reinforce-feed"])
def test_reinforce_hands_on_what_its_loss_needs(name: str) -> None:
    """In training only: the log-probability of the draws, which the scores learn from, and a baseline."""
    model = make(name, dropout=0.0).train()
    torch.manual_seed(0)
    hidden, logp, value = model.features(SRC, MASK, TGT)
    assert hidden.shape[:2] == logp.shape == value.shape == (4, 5)
    close(logp[3], torch.zeros(5).double())  # one word, nothing to choose
    assert (logp[:3] < 0).any(1).all()
    torch.manual_seed(0)
    drawn = model.attention(SRC, MASK, TGT)["cross"]
    assert ((drawn == 0) | (drawn == 1)).all()
    grads = torch.autograd.grad(logp.sum(), tuple(model.decoder.attention.scorer.parameters()))
    assert all(grad.abs().max() > 0 for grad in grads)
    baseline = model.decoder.attention.normaliser.baseline
    grads = torch.autograd.grad(value.sum(), tuple(model.parameters()), allow_unused=True)
    trained = {id(p) for p, grad in zip(model.parameters(), grads, strict=True) if grad is not None}
    assert trained == {id(p) for p in baseline.parameters()}


def test_a_draw_has_the_probability_that_soft_attention_gives_it() -> None:
    """Luong's states do not depend on what was drawn before them, so a soft model has the same."""
    hard = make("reinforce-after", dropout=0.0).train()
    soft = make("luong-general", dropout=0.0, num_layers=1)
    soft.load_state_dict(hard.state_dict(), strict=False)
    torch.manual_seed(0)
    _, logp, value = hard.features(SRC, MASK, TGT)
    torch.manual_seed(0)
    drawn = hard.attention(SRC, MASK, TGT)["cross"]
    close(logp, (soft.attention(SRC, MASK, TGT)["cross"] * drawn).sum((1, 3)).log())
    decoder, memory = soft.decoder, soft.encode(SRC, MASK)
    start = tuple(part.squeeze(1).transpose(0, 1).contiguous() for part in decoder.init_state(memory, 1)[:2])
    top = decoder.rnn(decoder.embedding(TGT.t()), start)[0].transpose(0, 1)
    close(value, hard.decoder.attention.normaliser.baseline(top).squeeze(-1))


# --- the parts, each by itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "heads-feed", "own-both", "static-before"])
def test_a_decoder_reads_any_encoder(name: str) -> None:
    """States 10 wide and a summary of 7, as from another room; stepping still is the full pass."""
    config = Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 8, **MODELS[name]})
    decoder = Decoder(config, V, value_size=10, summary_size=7).double().eval()
    memory = decoder.remember(Encoded(double(4, 6, 10), MASK, double(4, 7)))
    full, state = decoder(TGT, memory), decoder.init_state(memory, beam=1)
    assert full.readout.shape == (4, 5, config.output_size)
    assert full.attended.weights.shape == (4, config.attention.num_heads, 5, 6)
    for t in range(5):
        readout, state = decoder.step(TGT[:, t : t + 1], state, memory)
        close(readout[:, 0], full.readout[:, t])


def test_an_encoder_alone_says_what_it_gives() -> None:
    config = Seq2SeqConfig(embedding_size=6, hidden_size=8, encoder_size=10, num_layers=3)
    encoder = Encoder(config, V).eval()
    states, _, summary, own = encoder(SRC, MASK)
    assert states.shape == (4, 6, encoder.state_size) == (4, 6, 10)
    assert summary.shape == (4, encoder.summary_size) == (4, 3 * 2 * 10)
    assert own is None


def test_reversal_turns_round_real_tokens_only() -> None:
    expected = [[2, 1, 0, 3], [0, 1, 2, 3], [3, 2, 1, 0]]
    assert reversal(torch.tensor([3, 1, 4]), 4).tolist() == expected


def test_reversal_changes_a_model_but_not_where_its_weights_stand() -> None:
    """A palindrome reads alike from both ends; any other sentence does not."""
    plain, turned = make("bahdanau", direction="forward"), make("bahdanau", direction="backward")
    palindrome = torch.tensor([[1, 4, 7, 4, 1]])
    mask = torch.ones(1, 5, dtype=torch.bool)
    close(turned(palindrome, mask, TGT[:1]), plain(palindrome, mask, TGT[:1]))
    weights = [m.attention(palindrome, mask, TGT[:1])["cross"] for m in (plain, turned)]
    close(weights[1], weights[0].flip(-1))
    assert (turned(SRC, MASK, TGT) - plain(SRC, MASK, TGT)).abs().max() > 1e-3


def test_the_decoder_starts_from_the_bridge() -> None:
    model = make("bahdanau", num_layers=2)
    encoded = model.encoder(SRC, MASK)
    state = model.init_state(model.encode(SRC, MASK), beam=3, capacity=9)
    expected = torch.tanh(encoded.summary @ model.decoder.bridge.weight.t() + model.decoder.bridge.bias)
    expected = expected.view(4, 1, 2, 2, 8).expand(-1, 3, -1, -1, -1)  # (B, K, L, (h, c), H)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    close(state.last, expected[:, :, 1, 0])
    assert torch.equal(state.position, torch.zeros(4, 3, dtype=torch.long))
    assert state.past.shape == (4, 3, 0, 8)


def test_without_attention_the_decoder_starts_from_the_encoders_last_states() -> None:
    """Nothing may stand between them: what the source says passes here or nowhere."""
    model = make("lstm", num_layers=2)
    expected = model.encoder(SRC, MASK).summary.view(4, 1, 2, 2, 8)  # (B, K, L, (h, c), H)
    state = model.init_state(model.encode(SRC, MASK), beam=1, capacity=9)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    assert state.last.shape == (4, 1, 0)
    assert model.decoder.bridge is None


def test_a_state_counts_its_tokens() -> None:
    model = make("static-before")
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=2, capacity=3)
    for t in range(3):
        assert torch.equal(state.position, torch.full((4, 2), t))
        _, state = model.step(TGT[:, :2], state, memory)


# --- dropout, first weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_scales_to_one(name: str) -> None:
    model = make(name, dropout=0.5)
    close(model(SRC, MASK, TGT), model(SRC, MASK, TGT))
    model.train()
    assert (model(SRC, MASK, TGT) - model(SRC, MASK, TGT)).abs().max() > 1e-3
    torch.manual_seed(0)
    hidden = torch.cat([model.features(SRC, MASK, TGT).hidden.flatten() for _ in range(4)])
    assert (
        0.35 < (hidden == 0).double().mean() < 0.65
    )  # at least 320 draws: five standard deviations are 0.14
    if model.config.readout == "tanh":
        assert hidden.abs().max() > 1  # tanh alone stays below 1: what is left is doubled
    model.output = nn.Identity()
    memory = model.encode(SRC, MASK)
    stepped, _ = model.step(TGT.repeat(1, 4), model.init_state(memory, beam=20, capacity=1), memory)
    assert 0.35 < (stepped == 0).double().mean() < 0.65


def test_dropout_hits_the_embeddings_of_both_sides() -> None:
    """With one layer nothing else in encoder and decoder is random: the readout is dropped after them."""
    model = make("bahdanau", dropout=0.5)
    memory = model.encode(SRC, MASK)
    model.train()
    assert (model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states).abs().max() > 1e-3
    assert (model.decoder(TGT, memory).readout - model.decoder(TGT, memory).readout).abs().max() > 1e-3


def test_first_weights() -> None:
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=8, num_layers=3, self_attention="both")
    model = Seq2Seq(config, V, V)
    for stack, size in ((model.encoder.rnn, 4), (model.decoder.rnn, 8)):
        for weight_x, weight_h, bias_x, bias_h in stack.layers:
            for gate in range(4):
                rows = slice(gate * size, (gate + 1) * size)
                torch.testing.assert_close(weight_h[rows] @ weight_h[rows].t(), torch.eye(size))
                assert 0 < weight_x[rows].abs().max() <= math.sqrt(6 / (size + weight_x.size(1)))
                assert (bias_x[rows] == (1 if gate == 1 else 0)).all()
            assert (bias_h == 0).all()
    assert 0.05 < model.encoder.embedding.weight.abs().max() <= 0.1
    assert (model.output.bias == 0).all()
    for linear in (module for module in model.modules() if isinstance(module, nn.Linear)):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert 0.5 * bound < linear.weight.abs().max() <= bound


# --- tying and configuration ------------------------------------------------------------------------------


def test_tied_weights_are_one_parameter() -> None:
    def weights(**changes: Any) -> tuple[int, int]:
        model = Seq2Seq(Seq2SeqConfig(embedding_size=6, hidden_size=8, **changes), V, V)
        three = (model.encoder.embedding.weight, model.decoder.embedding.weight, model.output.weight)
        return len({id(weight) for weight in three}), model.output.in_features

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
        (  # a decoder on another room's encoder
            lambda: Decoder(Seq2SeqConfig(attention=before("dot"), hidden_size=8), V, 10, 10),
            r'"dot" needs .* got 8 and 10: use "general"',
        ),
        (
            lambda: Decoder(Seq2SeqConfig(attention=None, hidden_size=8, num_layers=2), V, 10, 10),
            r"it must be 32 wide \(the states of 2 layers\), got 10",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
