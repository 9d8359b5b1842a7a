"""Recurrent models with every mechanism: against ``seq2seq.formulas``, the contract, and randomness."""

import itertools
import math
import os
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from compare.experiment.verify import CHECKS
from seq2seq import (
    Decoder,
    EncoderOutput,
    RecurrentLanguageModel,
    RecurrentLanguageModelConfig,
    RegularisationConfig,
    Seq2Seq,
    Seq2SeqConfig,
    formulas,
)
from tests.kits.contract import seeded_float64, sources, targets
from tests.kits.recurrent import (
    LENGTHS,
    MASK,
    MODELS,
    SRC,
    TGT,
    V,
    attend,
    cells_of,
    close,
    double,
    make,
    zeros,
)

SMOOTH = [name for name in MODELS if not name.startswith(("hard", "reinforce"))]
"""Models without hard attention, whose selection has no gradient and may change by rounding."""

_float64 = pytest.fixture(seeded_float64)
READS_BACKWARD = {"both": [False, True], "forward": [False], "backward": [True], "both-bottom": [False]}
"""By direction: for each direction of a layer above the bottom one, whether it reads from the right."""


class TwinEncoding(NamedTuple):
    """Output of the encoder for one sentence: (S, E), the last states layer by layer, and (D, S, S)."""

    states: Tensor
    summary: list[Tensor]
    self_attention: Tensor | None


class TwinDecoding(NamedTuple):
    """Logits (T, V) and weights by name, as ``Seq2Seq.attention`` returns them, of one sentence."""

    logits: Tensor
    attention: dict[str, Tensor | None]


def encode(model: Seq2Seq, tokens: Tensor) -> TwinEncoding:
    """Encode one sentence (S,)."""
    encoder, config = model.encoder, model.config
    cells, gains, parts = iter(cells_of(encoder.rnn)), encoder.rnn.gain, 2 if config.has_cell_state else 1
    xs, summary, directions = list(encoder.embedding.weight[tokens]), [], READS_BACKWARD[config.direction]
    size = config.states_size // len(directions)
    for layer in range(config.encoder_layers or config.num_layers):
        at_bottom = config.direction == "both-bottom" and layer == 0
        inputs = [formulas.rms_norm(x, gains[layer - 1]) if gains is not None and layer else x for x in xs]
        runs = [
            formulas.read(inputs, next(cells), zeros(size, parts), backward)
            for backward in ([False, True] if at_bottom else directions)
        ]
        outputs = [torch.cat(halves) for halves in zip(*(run[0] for run in runs), strict=True)]
        first = 2 if gains is None else 1
        xs = [formulas.residual(layer, x, out, first) for x, out in zip(xs, outputs, strict=True)]
        finals = [state for _, state in runs][-1 if at_bottom else 0 :]
        summary += [torch.cat(of_part) for of_part in zip(*finals, strict=True)]
    if gains is not None:
        xs = [formulas.rms_norm(x, gains[-1]) for x in xs]
    if encoder.self_attention is None:
        return TwinEncoding(torch.stack(xs), summary, None)
    combined, weights = [], []
    for part, (attention, backward) in enumerate(zip(encoder.self_attention.parts, directions, strict=True)):
        halves = [x.chunk(len(directions))[part] for x in xs]
        outputs, rows = self_attend_all(halves[::-1] if backward else halves, attention.join.weight)
        combined.append(outputs.flip(0) if backward else outputs)
        weights.append(rows.flip(0, 1) if backward else rows)
    return TwinEncoding(torch.cat(combined, dim=1), summary, torch.stack(weights))


def self_attend_all(states: list[Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
    """Let each state attend to those before it; returns (S, E) and the weights (S, S)."""
    results = [formulas.self_attention(state, states[:t], w) for t, state in enumerate(states)]
    rows = [torch.cat((a, a.new_zeros(len(states) - len(a)))) for _, a in results]
    return torch.stack([combined for combined, _ in results]), torch.stack(rows)


def first_states(model: Seq2Seq, encoded: TwinEncoding) -> list[formulas.State]:
    """Return the first state of each layer of the decoder."""
    config, decoder, start = model.config, model.decoder, torch.cat(encoded.summary)
    kind = config.decoder_start or ("bridge" if config.attention is not None else "last")
    parts = 2 if config.has_cell_state else 1
    if kind == "zeros":
        return [zeros(config.hidden_size, parts)] * config.num_layers
    if kind == "bridge":
        start = formulas.bridge(start, decoder.bridge.weight, decoder.bridge.bias)
    return [tuple(layer.split(config.hidden_size)) for layer in start.chunk(config.num_layers)]


class TwinAttention:
    """The attention to one sentence h (S, E), step by step."""

    def __init__(self, model: Seq2Seq, h: Tensor) -> None:
        self.module, self.config, self.h = model.decoder.attention, model.config.attention, h
        self.total = torch.zeros(self.config.num_heads, len(h), dtype=torch.float64)
        self.last, self.context = torch.zeros_like(self.total), torch.empty(0)
        if self.config.normaliser == "monotonic":
            self.last[:, 0] = 1
        self.rows: list[Tensor] = []

    def __call__(self, s: Tensor) -> Tensor:
        """Return the context of one step, which is remembered, as the weights are."""
        state = len(self.rows), self.last, self.total
        self.last, self.context = attend(self.module, self.config, s, self.h, *state)
        self.total = self.total + self.last
        self.rows.append(self.last)
        return self.context

    def weights(self) -> Tensor:
        """Return the weights of all steps, (heads, T, S)."""
        return torch.stack(self.rows, dim=1)


def decode(model: Seq2Seq, source: Tensor, target: Tensor) -> TwinDecoding:
    """Encode ``source`` (S,) and predict the next token after each token of ``target`` (T,)."""
    decoder, config, settings = model.decoder, model.config, model.config.attention
    cells, encoded = cells_of(decoder.rnn), encode(model, source)
    attend = None if settings is None else TwinAttention(model, encoded.states)
    layers = first_states(model, encoded)
    query_layer = ((settings and settings.query_layer) or config.num_layers) - 1
    summary, fed = layers[-1][0], torch.zeros(config.output_size, dtype=torch.float64)
    to_all, before = settings is not None and settings.context_to == "all", decoder.attends_before
    stack_step = formulas.stack_step
    if decoder.rnn.gain is not None:
        stack_step = partial(formulas.pre_norm_stack_step, gains=decoder.rnn.gain)
    reads_context = settings is None or settings.context_to_readout
    is_standard = query_layer == config.num_layers - 1 and config.readout != "none" and reads_context
    logits, tops, past, own_rows = [], [], [], []

    def cell(x: Tensor, state: Any) -> Any:
        """Run all layers; the state is that which attends, and those of the layers."""
        outputs, after = stack_step(x, state[1], cells, context=attend.context if to_all else None)
        query = outputs[query_layer]
        tops.append(outputs[-1])
        if decoder.self_attention is not None:
            query, weights = formulas.self_attention(outputs[-1], past, decoder.self_attention.join.weight)
            past.append(outputs[-1])
            tops.append(query)
            own_rows.append(torch.cat((weights, weights.new_zeros(len(target) - len(weights)))))
        return query, after

    state: Any = (layers[query_layer][0], layers)
    for token in target:
        y = decoder.embedding.weight[token]
        y = torch.cat((y, summary)) if config.feed_summary else y
        if attend is None:
            x, state = formulas.lstm_step(y, state, cell)
        elif (
            before
            and to_all
            and query_layer == 0
            and decoder.self_attention is None
            and decoder.rnn.gain is None
        ):
            top, c, after = formulas.gnmt_step(y, state[1], cells, attend)
            x, state = torch.cat((top, c, y)), (None, after)
            tops.append(top)
        elif before:
            x, state = formulas.bahdanau_step(y, state, cell, attend)
        else:
            x, state = formulas.luong_step(y, fed if settings.input_feeding else fed[:0], state, cell, attend)
        if not is_standard:  # the layer that attends is not the top one, or the readout reads less
            context = () if settings is None or not settings.context_to_readout else (attend.context,)
            inputs = () if config.readout == "none" or decoder.attends_after else (y,)
            x = torch.cat((tops[-1], *context, *inputs))
        if config.readout != "none":
            readout = formulas.maxout_readout if config.readout == "maxout" else formulas.tanh_readout
            x = readout(x, decoder.readout.weight, decoder.readout.bias)
        fed = x
        logits.append(model.output.weight @ x + model.output.bias)
    return TwinDecoding(
        torch.stack(logits),
        {
            "cross": None if attend is None else attend.weights(),
            "encoder": encoded.self_attention,
            "decoder": torch.stack(own_rows).unsqueeze(0) if own_rows else None,
        },
    )


# --- every model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_the_papers_equations_and_so_do_its_gradients(name: str) -> None:
    """States, weights and logits of a padded batch are those of each sentence alone; ``summary`` too."""
    model = make(name)
    states, mask, summary, _ = model.encoder(SRC, MASK)
    assert mask is MASK
    assert (states[~MASK] == 0).all()
    logits, attention = model(SRC, MASK, TGT), model.attention(SRC, MASK, TGT)
    expected = [decode(model, SRC[row, :length], TGT[row]) for row, length in enumerate(LENGTHS)]
    for row, length in enumerate(LENGTHS):
        encoded = encode(model, SRC[row, :length])
        close(states[row, :length], encoded.states)
        close(summary[row], torch.cat(encoded.summary))
        close(logits[row], expected[row].logits)
        kinds = {kind for kind, weights in expected[row].attention.items() if weights is not None}
        assert set(attention) == kinds
        for kind, weights in attention.items():
            real = weights[row] if kind == "decoder" else weights[row, ..., :length]
            close(real[:, :length] if kind == "encoder" else real, expected[row].attention[kind])
    if name not in SMOOTH:  # a choice has no gradient
        return
    names, parameters = zip(*model.named_parameters(), strict=True)
    twin = torch.stack([decoding.logits for decoding in expected])
    ours, theirs = (torch.autograd.grad(result.sin().sum(), parameters) for result in (logits, twin))
    for parameter, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-11, msg=parameter)
        assert one.abs().max() > 0


@pytest.mark.parametrize(("layers", "tie"), [(1, "none"), (2, "output"), (4, "output")])
def test_a_language_model_equals_its_formula_and_so_do_its_gradients(layers: int, tie: str) -> None:
    config = RecurrentLanguageModelConfig(embedding_size=6, hidden_size=6, num_layers=layers, tie=tie)
    model = RecurrentLanguageModel(config, V).double().eval()
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)
    assert (model.output.weight is model.decoder.embedding.weight) == (tie == "output")
    cells, expected = cells_of(model.decoder.rnn), []
    for text in TGT:
        states: list[Any] = [zeros(6, 2) for _ in cells]
        for token in text:
            outputs, states = formulas.stack_step(model.decoder.embedding.weight[token], states, cells)
            expected.append(model.output.weight @ outputs[-1] + model.output.bias)
    logits, twin = model(TGT), torch.stack(expected).view(4, 5, V)
    close(logits, twin)
    parameters = [*model.parameters()]
    ours, theirs = (torch.autograd.grad(result.sin().sum(), parameters) for result in (logits, twin))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("_float64")
@torch.no_grad()
def test_every_mechanism_holds_to_the_contract(name: str) -> None:
    """Steps, beams, padding, neighbours, copies for a search; as every preset in test_protocol.py."""
    model = make(name)
    for check, run in CHECKS.items():
        if check not in ("source", "attention weights"):  # short sources; weights of 0
            run(model, *sources(), targets())


BOTH_CELLS = [
    name for name in SMOOTH if name.startswith(("bahdanau", "luong", "min", "norm", "deep", "gnmt"))
]


@pytest.mark.skipif(
    os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2",
    reason="torch goes by the processor's flags, not by this limit",
)
@pytest.mark.parametrize("name", BOTH_CELLS)
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


@pytest.mark.parametrize("name", ["lstm", "bahdanau", "deep-lstm", "luong-dot-feed", "min-gru", "min-lstm"])
def test_a_bfloat16_copy_keeps_the_cell_state_in_float32_and_steps_as_it_runs(name: str) -> None:
    model = make(name).bfloat16()
    memory = model.encode(SRC, MASK)
    state, steps = model.init_state(memory, 1, 5), []
    for t in range(5):
        assert state.c.dtype == torch.float32
        assert state.h.dtype == state.feedback.dtype == torch.bfloat16
        logits, state = model.step(TGT[:, t : t + 1], state, memory)
        steps.append(logits)
    assert logits.dtype == torch.bfloat16
    full = model(SRC, MASK, TGT).float()
    torch.testing.assert_close(torch.cat(steps, dim=1).float(), full, rtol=0, atol=0.15)


@pytest.mark.parametrize(
    ("name", "calls"),
    [("luong-general", [1, 1]), ("min-gru", [1, 1]), ("gnmt", [1, 1, 1]), ("middle-before", [0, 1, 1])],
)
def test_what_is_not_fed_back_runs_all_steps_at_once(name: str, calls: list[int]) -> None:
    """The whole stack and the attention, or the layers above the one that attends."""
    model, counts = make(name), []
    decoder = model.decoder
    parts = [decoder.rnn, decoder.attention]
    if decoder.query_depth < len(decoder.rnn.layers):
        parts = list(decoder.rnn.layers[1:])
    for number, part in enumerate(parts):
        part.register_forward_hook(lambda *_, number=number: counts.append(number))
    model(SRC, MASK, TGT)
    assert [counts.count(number) for number in range(len(parts))] == calls


# --- parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "heads-feed", "own-both", "static-before"])
def test_a_decoder_accepts_any_encoder_output(name: str) -> None:
    """States of size 10 and a summary of 7, as of another package; stepping still equals the full pass."""
    config = Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 8, **MODELS[name]})
    decoder = Decoder(config, V, value_size=10, summary_size=7).double().eval()
    memory = decoder.remember(EncoderOutput(double(4, 6, 10), MASK, double(4, 7)))
    full, state = decoder(TGT, memory), decoder.init_state(memory, beam=1)
    assert full.attention.weights.shape == (4, config.attention.num_heads, 5, 6)
    for t in range(5):
        readout, state = decoder.step(TGT[:, t : t + 1], state, memory)
        close(readout[:, 0], full.readout[:, t])


def test_two_vocabularies_cannot_share_their_embeddings() -> None:
    with pytest.raises(ValueError, match=r'tie "all" needs one vocabulary .* 11 source and 12 target'):
        Seq2Seq(Seq2SeqConfig(tie="all"), 11, 12)


# --- randomness -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reinforce-before", "reinforce-after", "reinforce-feed"])
def test_reinforce_returns_what_its_loss_needs(name: str) -> None:
    """In training only: the log-probability of the samples, which trains the scores, and the baseline."""
    model = make(name, dropout=0.0).train()
    torch.manual_seed(0)
    hidden, (logp, value, *_) = model.features(SRC, MASK, TGT)
    assert hidden.shape[:2] == logp.shape == value.shape == (4, 5)
    close(logp[3], torch.zeros(5).double())  # a source of one word has only one position
    assert (logp[:3] < 0).any(1).all()
    torch.manual_seed(0)
    samples = model.attention(SRC, MASK, TGT)["cross"]
    assert ((samples == 0) | (samples == 1)).all()
    grads = torch.autograd.grad(logp.sum(), tuple(model.decoder.attention.scorer.parameters()))
    assert all(grad.abs().max() > 0 for grad in grads)
    baseline = model.decoder.attention.normaliser.baseline
    grads = torch.autograd.grad(value.sum(), tuple(model.parameters()), allow_unused=True)
    trained = {id(p) for p, grad in zip(model.parameters(), grads, strict=True) if grad is not None}
    assert trained == {id(p) for p in baseline.parameters()}
    if name != "reinforce-after":
        return
    # These states do not depend on earlier samples, so a soft model has the same.
    soft = make("luong-general", dropout=0.0, num_layers=1)
    soft.load_state_dict(model.state_dict(), strict=False)
    close(logp, (soft.attention(SRC, MASK, TGT)["cross"] * samples).sum((1, 3)).log())


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_preserves_the_mean(name: str) -> None:
    model = make(name, dropout=0.5).train()
    assert (model(SRC, MASK, TGT) - model(SRC, MASK, TGT)).abs().max() > 1e-3
    torch.manual_seed(0)
    hidden = torch.cat([model.features(SRC, MASK, TGT).hidden.flatten() for _ in range(4)])
    # At least 320 samples: five standard deviations are 0.14.
    assert 0.35 < (hidden == 0).double().mean() < 0.65
    if model.config.readout == "tanh":
        assert hidden.abs().max() > 1  # tanh is below 1; dropout of a half doubles what remains
    model.output = nn.Identity()
    memory = model.encode(SRC, MASK)
    stepped, _ = model.step(TGT.repeat(1, 4), model.init_state(memory, beam=20, capacity=1), memory)
    assert 0.35 < (stepped == 0).double().mean() < 0.65


def test_dropout_is_applied_to_the_embeddings_of_both_sides() -> None:
    """With one layer nothing else is random in the encoder and in the states that attend."""
    model = make("bahdanau", dropout=0.5)
    memory = model.encode(SRC, MASK)
    model.train()
    assert (model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states).abs().max() > 1e-3
    one, other = (model.decoder(TGT, memory).attention.weights for _ in range(2))
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn", "layer-norm-lstm"])
@pytest.mark.parametrize("attention", ["bahdanau", "luong-general", "lstm", "rnmt"])
def test_recurrent_dropout_acts_in_training_only(attention: str, cell: str) -> None:
    settings = {"cell": cell, "dropout": 0.0, "num_layers": 2}
    settings |= {"encoder_layers": None} if attention == "rnmt" else {}
    plain = make(attention, **settings)
    model = make(attention, **settings, regularisation=RegularisationConfig(recurrent_dropout=0.5))
    model.load_state_dict(plain.state_dict())
    close(model(SRC, MASK, TGT), plain(SRC, MASK, TGT))
    model.train()
    assert (model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states).abs().max() > 1e-3
    memory = model.encode(SRC, MASK)
    one, other = (model.decoder(TGT, memory).readout for _ in range(2))
    assert (one - other).abs().max() > 1e-3
    one.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_initial_weights() -> None:
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=8, num_layers=3, self_attention="both")
    model = Seq2Seq(config, V, V)
    for stack, size in ((model.encoder.rnn, 4), (model.decoder.rnn, 8)):
        layers = itertools.chain(*(layer.all_weights for layer in stack.layers))
        for weight_x, weight_h, bias_x, bias_h in layers:
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
    minimal = Seq2Seq(Seq2SeqConfig(cell="min-lstm", embedding_size=6, hidden_size=8), V, V)
    bias = minimal.decoder.rnn.layers[0].cells[0].bias_ih
    assert bias.tolist() == [0.0] * 8 + [1.0] * 8 + [0.0] * 8  # input gate, forget gate, candidate
