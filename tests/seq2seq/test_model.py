"""Recurrent models with every mechanism: against a slow twin, alone, in batches and in beams."""

import pytest
import torch
from torch import nn

from compare.protocol import EncoderDecoder, keep, select
from seq2seq import Seq2Seq, Seq2SeqConfig
from tests.kits.recurrent_twin import decode, encode
from tests.kits.seq2seq import FUSED, LENGTHS, MASK, MODELS, SMOOTH, SRC, TGT, V, close, leaves, make


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return make(request.param)


# --- every model ------------------------------------------------------------------------------------------


def test_a_model_equals_the_papers_equations(model: Seq2Seq) -> None:
    logits, attention = model(SRC, MASK, TGT), model.attention(SRC, MASK, TGT)
    for row, length in enumerate(LENGTHS):
        expected = decode(model, SRC[row, :length], TGT[row])
        close(logits[row], expected.logits)
        assert set(attention) == {name for name, weights in expected.attention.items() if weights is not None}
        for name, weights in attention.items():
            real = weights[row] if name == "decoder" else weights[row, ..., :length]
            close(real[:, :length] if name == "encoder" else real, expected.attention[name])


def test_the_encoder_equals_its_equations(model: Seq2Seq) -> None:
    states, mask, summary, _ = model.encoder(SRC, MASK)
    assert mask is MASK
    assert (states[~MASK] == 0).all()
    assert states.size(2) == model.encoder.state_size
    assert summary.size(1) == model.encoder.summary_size
    for row, length in enumerate(LENGTHS):
        expected = encode(model, SRC[row, :length])
        close(states[row, :length], expected.states)
        close(summary[row], torch.cat(expected.summary))


def test_a_model_implements_the_protocol(model: Seq2Seq) -> None:
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


def test_padding_and_the_ids_in_it_have_no_effect(model: Seq2Seq) -> None:
    garbage = torch.randint(V, (4, 9), generator=torch.Generator().manual_seed(4))
    garbage[:, :6] = torch.where(MASK, SRC, garbage[:, :6])
    mask = torch.arange(9) < LENGTHS.unsqueeze(1)
    close(model(garbage, mask, TGT), model(SRC, MASK, TGT))


def test_a_sentence_does_not_depend_on_its_batch_neighbours(model: Seq2Seq) -> None:
    full = model(SRC, MASK, TGT)
    for row, length in enumerate(LENGTHS):
        alone = model(SRC[row : row + 1, :length], MASK[row : row + 1, :length], TGT[row : row + 1])
        close(alone[0], full[row])
    order = torch.tensor([2, 0, 3, 1])
    close(model(SRC[order], MASK[order], TGT[order]), full[order])


def test_hypotheses_of_a_beam_step_as_if_alone(model: Seq2Seq) -> None:
    """Three hypotheses, reordered between the steps, equal each history fed again by itself."""
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


def test_finished_sentences_can_be_removed_from_memory_and_state(model: Seq2Seq) -> None:
    memory = model.encode(SRC, MASK)
    assert all(len(leaf) == 4 for leaf in leaves(memory))
    _, state = model.step(TGT[:, :2], model.init_state(memory, 2, 3), memory)
    expected, _ = model.step(TGT[:, 2:4], state, memory)
    rows = torch.tensor([3, 1])
    remaining, _ = model.step(TGT[rows, 2:4], keep(state, rows), keep(memory, rows))
    close(remaining, expected[rows])


@pytest.mark.parametrize("name", SMOOTH)
def test_every_parameter_has_the_gradient_of_the_papers_equations(name: str) -> None:
    model = make(name)
    names, parameters = zip(*model.named_parameters(), strict=True)
    weight = torch.randn(4, 5, V, dtype=torch.float64)
    twin = torch.stack(
        [decode(model, SRC[row, :length], TGT[row]).logits for row, length in enumerate(LENGTHS)]
    )
    ours, expected = (
        torch.autograd.grad((logits * weight).sum(), parameters) for logits in (model(SRC, MASK, TGT), twin)
    )
    for parameter, one, two in zip(names, ours, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-11, msg=parameter)
        assert one.abs().max() > 0


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_determines_the_initial_weights(name: str) -> None:
    config = Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 8, **MODELS[name]})
    weights = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        weights.append(Seq2Seq(config, V, V).state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    matrices = [key for key in weights[0] if "bias" not in key and "gain" not in key]
    assert all(not torch.equal(weights[0][key], weights[2][key]) for key in matrices)


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


# --- computed only once -----------------------------------------------------------------------------------


class Calls:
    """Counter of the calls of modules, by name."""

    def __init__(self, **modules: nn.Module) -> None:
        self.counts = dict.fromkeys(modules, 0)
        for name, module in modules.items():
            module.register_forward_hook(lambda *_, name=name: self.add(name))

    def add(self, name: str) -> None:
        self.counts[name] += 1


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "heads-feed", "own-both", "lstm"])
def test_one_encoder_pass_serves_any_number_of_searches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two full targets, a greedy and a beam search: the source is encoded, and its keys computed, once."""
    model, other = make(name), TGT.flip(1)
    expected = [model(SRC, MASK, tgt_in) for tgt_in in (TGT, other)]
    calls, remember_calls = Calls(encoder=model.encoder), []
    if model.decoder.attention is not None:
        remember = model.decoder.attention.remember

        def counted(*args: object) -> object:
            remember_calls.append(1)
            return remember(*args)

        monkeypatch.setattr(model.decoder.attention, "remember", counted)
    memory = model.encode(SRC, MASK)
    for tgt_in, logits in zip((TGT, other), expected, strict=True):
        close(model.output(model.decoder(tgt_in, memory).readout), logits)
    for beam in (1, 4):
        state = model.init_state(memory, beam, 5)
        for t in range(5):
            step_logits, state = model.step(TGT[:, t : t + 1].expand(-1, beam), state, memory)
            close(step_logits, expected[0][:, t : t + 1].expand(-1, beam, -1))
    assert calls.counts == {"encoder": 1}
    assert len(remember_calls) == (model.decoder.attention is not None)


@pytest.mark.parametrize("name", MODELS)
def test_models_without_feedback_run_all_steps_at_once(name: str) -> None:
    model = make(name)
    decoder = model.decoder
    parts = {"rnn": decoder.rnn, "attention": decoder.attention, "own": decoder.own}
    calls = Calls(**{part: module for part, module in parts.items() if module is not None})
    model(SRC, MASK, TGT)
    times = 1 if name in FUSED else 5
    in_one_call = name in FUSED and not model.config.queries_below_top  # else in two calls of its parts
    expected = {"rnn": int(in_one_call), "attention": times, "own": times}
    assert calls.counts == {part: expected[part] for part in calls.counts}


@pytest.mark.parametrize("name", ["gnmt", "middle-before"])
def test_layers_above_the_one_that_attends_run_all_steps_at_once(name: str) -> None:
    model = make(name)
    calls = Calls(**{f"above {i}": layer for i, layer in enumerate(model.decoder.rnn.residual)})
    model(SRC, MASK, TGT)
    assert list(calls.counts.values()) == ([1, 1, 1] if name == "gnmt" else [0, 1, 1])


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_path_equals_the_stepwise_one(name: str) -> None:
    model = make(name)
    memory, decoder = model.encode(SRC, MASK), model.decoder
    inputs, state = decoder._inputs(TGT.t(), memory), decoder.init_state(memory, beam=1)
    fused = decoder._run_fused(inputs, state, memory)
    stepwise, _ = decoder._run_stepwise(inputs, state, memory)
    close(fused.readout, stepwise.readout)
    for left, right in (
        (fused.self_attention, stepwise.self_attention),
        (fused.attention, stepwise.attention),
    ):
        assert (left is None) == (right is None)
    if fused.self_attention is not None:
        close(fused.self_attention, stepwise.self_attention)
    if fused.attention is not None:
        close(fused.attention.weights, stepwise.attention.weights)
        close(fused.attention.context, stepwise.attention.context)
