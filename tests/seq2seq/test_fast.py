"""Kernels that only speed needs, against what torch computes: packing, layers, joined gradients, tanh."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import seq2seq.fast
from seq2seq import AdditiveScore, Attention, AttentionConfig, Queries
from seq2seq.fast import (
    CHUNK,
    PaddedSteps,
    Padding,
    StepwiseLinear,
    StepwiseProduct,
    half_tanh_,
    plan_packing,
    run_layer_by_layer,
    run_padded,
)
from seq2seq.stack import join_gates
from tests.kits.seq2seq import MASK, SRC, TGT, close, double, leaves, make

LENGTHS = torch.tensor([2, 6, 4, 1])  # their order is not its own inverse
CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])


def layers(cell: str, dtype: torch.dtype = torch.float64, num_layers: int = 2, **settings: Any) -> nn.RNNBase:
    torch.manual_seed(1)
    rnn: nn.RNNBase = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](5, 4, num_layers, **settings)
    return rnn.to(dtype)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(2)).to(dtype)


def entries(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x.data


def as_tuple(final: Any) -> tuple[Tensor, ...]:
    return final if isinstance(final, tuple) else (final,)


# --- packing


@pytest.mark.parametrize(
    ("lengths", "size"), [([6, 2, 4, 1], 6), ([1], 1), ([3, 3, 3], 3), ([1, 5, 5, 2], 8)]
)
def test_packing_is_that_of_torch_and_gradients_pass_through_both_ways(lengths: list[int], size: int):
    host = torch.tensor(lengths)
    x = torch.randn(len(lengths), size, 3, dtype=torch.float64)
    expected = pack_padded_sequence(x, host, batch_first=True, enforce_sorted=False)
    packing = plan_packing(host, size, x.device)
    found = packing.pack(x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    padded, _ = pad_packed_sequence(expected, batch_first=True, total_length=size)
    assert torch.equal(packing.unpack(found, size), padded)
    weight = torch.randn(x.shape, dtype=torch.float64)
    (packing.unpack(packing.pack(x.requires_grad_()), size) * weight).sum().backward()
    assert torch.equal(x.grad, weight * (torch.arange(size) < host.unsqueeze(1)).unsqueeze(2))


# --- layers one by one


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@CELLS
def test_layer_by_layer_is_what_torch_computes(
    cell: str, bidirectional: bool, packed: bool, with_state: bool
):
    rnn, x = layers(cell, bidirectional=bidirectional), inputs()
    steps = plan_packing(LENGTHS, 6, x.device).pack(x) if packed else x.transpose(0, 1)
    state = None
    if with_state:
        shape = (2 * (2 if bidirectional else 1), 4, 4)
        state = tuple(torch.randn(shape, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1))
    expected, final = rnn(steps, state if state is None or cell == "lstm" else state[0])
    found, found_final = run_layer_by_layer(rnn, steps, state)
    results = [[entries(found), *found_final], [entries(expected), *as_tuple(final)]]
    for one, other in zip(*results, strict=True):
        close(one, other)
    gradients = [
        torch.autograd.grad(output.square().sum() + last.sum(), list(rnn.parameters()))
        for output, last, *_ in results
    ]
    for one, other in zip(*gradients, strict=True):
        close(one, other)


def test_dropout_between_layers_follows_the_generator():
    """Its state is all that a checkpoint has to keep; evaluation drops nothing."""
    rnn, x = layers("lstm", bidirectional=True, dropout=0.5), inputs().transpose(0, 1)
    state = torch.get_rng_state()
    first = run_layer_by_layer(rnn, x, None)[0]
    other = run_layer_by_layer(rnn, x, None)[0]
    torch.set_rng_state(state)
    again = run_layer_by_layer(rnn, x, None)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.set_rng_state(state)
    run_layer_by_layer(rnn, x, None)
    after = torch.get_rng_state()
    torch.set_rng_state(state)  # one dropout of the size of a layer's output
    nn.functional.dropout(torch.ones(*x.shape[:2], 8, dtype=torch.float64), rnn.dropout)
    assert torch.equal(torch.get_rng_state(), after)
    rnn.eval()
    close(run_layer_by_layer(rnn, x, None)[0], rnn(x)[0])


@pytest.mark.parametrize("has_bf16", [False, True])
def test_autocast_gives_its_type_and_computes_in_it_where_cudnn_can(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seq2seq.fast, "has_bf16_layers", lambda: has_bf16)
    rnn, x = layers("lstm", torch.float32, bidirectional=True), inputs(torch.float32).transpose(0, 1)
    seen = []
    run = seq2seq.fast._run_layer

    def spy(rnn, entries, packed, start, flat, **ways):
        seen.extend([entries.dtype, *(part.dtype for part in (*start, *flat))])
        return run(rnn, entries, packed, start, flat, **ways)

    monkeypatch.setattr(seq2seq.fast, "_run_layer", spy)
    with torch.autocast("cpu", torch.bfloat16):
        output, final = run_layer_by_layer(rnn, x, None)
    assert set(seen) == {torch.bfloat16 if has_bf16 else torch.float32}
    assert {entries(output).dtype, *(part.dtype for part in final)} == {torch.bfloat16}
    torch.testing.assert_close(entries(output).float(), entries(rnn(x)[0]), rtol=0.05, atol=0.02)
    entries(output).float().sum().backward()
    assert all(weight.grad is not None and weight.grad.dtype == torch.float32 for weight in rnn.parameters())


def test_the_weights_of_a_layer_are_one_block_of_matrices_then_biases():
    rnn = layers("lstm", bidirectional=True)
    flat = seq2seq.fast._flatten(rnn.all_weights[:2], torch.float64)
    assert [part.dim() for part in flat] == [2, 2, 1, 1] * 2
    assert {part.untyped_storage().data_ptr() for part in flat} == {flat[0].untyped_storage().data_ptr()}
    offsets = [part.storage_offset() for part in flat]
    assert offsets[0] == 0
    assert max(offsets[i] for i in (0, 1, 4, 5)) < min(offsets[i] for i in (2, 3, 6, 7))
    for part, weight in zip(flat, (w for direction in rnn.all_weights[:2] for w in direction), strict=True):
        assert torch.equal(part, weight)


# --- layers over padded sentences


def results(rnn: nn.RNNBase, x: Tensor, packed: bool) -> list[Tensor]:
    """Return outputs (B, S, E) and final states, and the gradients of a function of all of them."""
    x = x.clone().requires_grad_()
    layout = plan_packing(LENGTHS, 6, x.device) if packed else Padding(LENGTHS)
    steps, final = rnn(layout.pack(x)) if packed else run_padded(rnn, layout.pack(x))
    states, final = layout.unpack(steps, 6), as_tuple(final)
    loss = states.square().sum() + sum(part.pow(3).sum() for part in final)
    return [states, *final, *torch.autograd.grad(loss, [x, *rnn.parameters()])]


@pytest.mark.parametrize("bidirectional", [False, True])
@CELLS
def test_padded_layers_compute_what_packed_ones_do(cell: str, bidirectional: bool):
    rnn, is_real = layers(cell, bidirectional=bidirectional), torch.arange(6) < LENGTHS.unsqueeze(1)
    for padding in (0.0, 100.0):  # gates that are open or closed by themselves must not matter
        x = inputs().where(is_real.unsqueeze(2), padding)
        for one, other in zip(results(rnn, x, False), results(rnn, x, True), strict=True):
            close(one, other)


@CELLS
def test_the_cell_state_of_a_short_sentence_is_held(cell: str):
    """Each sentence alone, without padding, has the same final states."""
    rnn, x = layers(cell, num_layers=1), inputs()
    _, final = run_padded(rnn, PaddedSteps(x.transpose(0, 1), LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = PaddedSteps(x[row : row + 1, :length].transpose(0, 1), torch.tensor([length]))
        for one, other in zip(final, run_padded(rnn, alone)[1], strict=True):
            close(one[:, row : row + 1], other, atol=1e-15)


@pytest.mark.parametrize("name", ["lstm", "lstm-reversed", "gru-summary", "deep-before", "own-encoder-gru"])
def test_a_model_is_the_same_without_packing(name: str, monkeypatch: pytest.MonkeyPatch):
    model = make(name)
    found = []
    for recorded in (False, True):
        monkeypatch.setattr(seq2seq.fast, "is_recorded", lambda _, recorded=recorded: recorded)
        hidden = model.features(SRC, MASK, TGT).hidden
        gradients = torch.autograd.grad(hidden.square().sum(), list(model.parameters()), allow_unused=True)
        present = [part for part in gradients if part is not None]
        found.append([*leaves(model.encode(SRC, MASK)), hidden, *present])
    for one, other in zip(*found, strict=True):
        close(one, other, atol=1e-10)


def test_dropout_between_padded_layers():
    rnn, steps = layers("gru", dropout=0.5), Padding(LENGTHS).pack(inputs())
    assert not torch.equal(run_padded(rnn, steps)[0].data, run_padded(rnn, steps)[0].data)
    rnn.eval()
    assert torch.equal(run_padded(rnn, steps)[0].data, run_padded(rnn, steps)[0].data)


# --- gradients of all steps at once, and single steps of a search


def test_gradients_of_a_stepwise_linear() -> None:
    def run(weight: Tensor, offsets: Tensor, x: Tensor) -> Tensor:
        layer = StepwiseLinear(weight, offsets)
        return torch.stack([layer(a, b).sin() for a, b in zip(layer.offsets.unbind(), x, strict=True)])

    assert torch.autograd.gradcheck(run, (double(3, 2), double(4, 5, 3), double(4, 5, 2)))


@pytest.mark.parametrize("leading", [(3,), (3, 2)])
def test_gradients_of_a_stepwise_product(leading: tuple[int, ...]) -> None:
    def run(matrix: Tensor, x: Tensor) -> Tensor:
        product = StepwiseProduct(matrix, len(x))
        return torch.stack([product(step).sin() for step in x])

    matrix, x = double(*leading, 4, 5), double(6, *leading, 1, 4)
    close(run(matrix, x), torch.stack([(step @ matrix).sin() for step in x]))
    assert torch.autograd.gradcheck(run, (matrix, x))


@pytest.mark.parametrize(
    "config",
    [
        AttentionConfig(score="additive"),
        AttentionConfig(score="general"),
        AttentionConfig(score="dynamic-factorised", attention_size=3),
        AttentionConfig(score="scaled-dot", attention_size=6, num_heads=2),
        AttentionConfig(score="general", scope="local-p", window=1),
        AttentionConfig(score="general", normaliser="straight-through"),
    ],
    ids=lambda config: f"{config.score}-{config.scope}-{config.normaliser}",
)
def test_stepwise_attention_equals_attention_and_its_gradients(config: AttentionConfig) -> None:
    torch.manual_seed(1)
    attention = Attention(config, 4, 5).double()
    states, queries = double(2, 6, 5), double(3, 2, 1, 4)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    inputs = (states, queries, *attention.parameters())

    def run(stepwise: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        source = attention.remember(states, mask)
        source = attention.join_gradients(source, len(queries)) if stepwise else source
        outputs = [
            attention(Queries(query, torch.full((2, 1), t)), source) for t, query in enumerate(queries)
        ]
        contexts = torch.stack([output.context for output in outputs])
        weights = torch.stack([output.weights for output in outputs])
        loss = contexts.sin().sum() + weights.square().sum()
        return contexts, torch.autograd.grad(loss, inputs)

    (found, gradients), (expected, others) = run(True), run(False)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    for left, right in zip(gradients, others, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_under_autocast_a_stepwise_product_is_that_of_bfloat16() -> None:
    matrix, x = torch.randn(2, 3, 4, requires_grad=True), torch.randn(1, 2, 1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        found = StepwiseProduct(matrix, 1)(x[0])
        assert found.dtype is torch.bfloat16
        torch.testing.assert_close(found, x[0] @ matrix)
    found.float().sum().backward()
    assert matrix.grad is not None
    assert matrix.grad.dtype is torch.float32


def test_training_and_gradients_never_use_the_joined_weights():
    model = make("luong-dot-feed")
    model.decoder.prepare_decoding()
    assert model.decoder.joined_gates is not None
    for layer in model.decoder.joined_gates:
        layer.weight.fill_(float("nan"))
    assert model(SRC, MASK, TGT).isfinite().all()
    memory = model.eval().encode(SRC, MASK)
    state = model.init_state(memory, 1, 1)
    assert model.step(TGT[:, :1], state, memory)[0].isfinite().all()
    with torch.no_grad():
        assert model.step(TGT[:, :1], state, memory)[0].isnan().all()


def test_cells_other_than_an_lstm_are_not_joined():
    """The contract in test_model.py has the steps of joined gates; here, that others have none."""
    model = make("bahdanau-gru")
    assert join_gates(model.decoder.rnn) is None
    model.decoder.prepare_decoding()
    assert model.decoder.joined_gates is None


# --- the additive score in half precision

H, A = 256, 256


def additive(weight_scale: float, one_sign: bool) -> tuple[AdditiveScore, Queries, Tensor]:
    """Create a score in float64 whose numbers are exact in bfloat16, with states for it."""
    draw = torch.Generator().manual_seed(1)
    score = AdditiveScore(H, H, AttentionConfig(attention_size=A)).double()
    shapes = {"query.weight": (A, H), "key.weight": (A, H), "energy.weight": (1, A)}
    weights = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    for name in ("query.weight", "key.weight"):
        weights[name] *= weight_scale / H**0.5
    weights["energy.weight"] *= 0.2
    if one_sign:
        weights["energy.weight"].abs_()
    score.load_state_dict({name: weight.bfloat16().double() for name, weight in weights.items()})
    states = [torch.randn(8, n, H, generator=draw).bfloat16().double() for n in (6, 20)]
    return score, Queries(states[0], torch.zeros(8, 6, dtype=torch.long)), states[1]


def evaluate(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
    return score.score(queries, score.project_keys(states))


def plain(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
    """Evaluate the formula as it is written."""
    hidden = (score.query(queries.state).unsqueeze(2) + score.key(states).unsqueeze(1)).tanh()
    return score.energy(hidden).squeeze(-1).unsqueeze(1)


@torch.no_grad()
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("one_sign", [False, True])
@pytest.mark.parametrize("weight_scale", [0.1, 1.5])
def test_the_additive_score_is_as_precise_as_a_plain_tanh(
    weight_scale: float, one_sign: bool, autocast: bool
) -> None:
    score, queries, states = additive(weight_scale, one_sign)
    exact = evaluate(score, queries, states)
    torch.testing.assert_close(exact, plain(score, queries, states), rtol=0, atol=1e-12)
    dtype = torch.float32 if autocast else torch.bfloat16
    rounded, queries = copy.deepcopy(score).to(dtype), queries._replace(state=queries.state.to(dtype))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        results = [function(rounded, queries, states.to(dtype)) for function in (evaluate, plain)]
    errors = [float((result - exact).square().mean().sqrt()) for result in results]
    assert all(result.dtype == torch.bfloat16 for result in results)
    assert errors[0] < 1.02 * errors[1]


def test_the_gradient_in_bfloat16_is_that_of_a_plain_tanh() -> None:
    score, queries, states = additive(0.5, one_sign=False)
    grads = []
    for function in (evaluate, plain):
        leaves = [queries.state.bfloat16().requires_grad_(), states.bfloat16().requires_grad_()]
        rounded = copy.deepcopy(score).bfloat16()
        function(rounded, queries._replace(state=leaves[0]), leaves[1]).sum().backward()
        grads.append([*(leaf.grad for leaf in leaves), rounded.energy.weight.grad])
    torch.testing.assert_close(*grads, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(0,), (3, 5), (CHUNK + 7,)])
def test_tanh_errs_by_one_rounding_and_by_fp32(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    """An error e in fp32 may move the result to the other neighbour, where that is at most 2 e farther."""
    x = torch.linspace(-4, 4, torch.Size(size).numel()).reshape(size)
    for inputs in (x.to(dtype), (x.sign() * 10 ** (-x.abs())).to(dtype)):
        exact = inputs.double().tanh()
        rounding = (exact.to(dtype).double() - exact).abs()
        result = half_tanh_(inputs.clone())
        assert ((result.double() - exact).abs() <= rounding + 2.4e-7).all()
        if x.dim() == 2:
            torch.testing.assert_close(half_tanh_(inputs.clone().t()), result.t())
