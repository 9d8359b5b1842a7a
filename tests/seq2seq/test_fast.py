"""Kernels that only speed needs, against what torch computes: packing, layers, joined gradients, tanh."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import seq2seq.fast
from seq2seq import AdditiveScore, AttentionConfig, Queries
from seq2seq.cells import run_step_by_step
from seq2seq.fast import (
    Packing,
    StepwiseLinear,
    StepwiseProduct,
    join_gates,
    run_cudnn_layer,
    run_padded_lstm,
)
from tests.kits.recurrent import MASK, SRC, TGT, close, double, make

LENGTHS = torch.tensor([2, 6, 4, 1])  # their order is not its own inverse


def layer(cell: str, dtype: torch.dtype = torch.float64, *, bidirectional: bool = True) -> nn.RNNBase:
    torch.manual_seed(1)
    rnn: nn.RNNBase = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell](5, 4, bidirectional=bidirectional)
    return rnn.to(dtype)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(2)).to(dtype)


def parts(steps: Any, final: Any) -> list[Tensor]:
    """Return the outputs, packed or not, and the final states, of a GRU a bare tensor in torch."""
    entries = steps if isinstance(steps, Tensor) else steps.data
    return [entries, *(final if isinstance(final, tuple) else (final,))]


def same_with_gradients(ours: list[Tensor], expected: list[Tensor], of: list[Tensor]) -> None:
    totals = (sum(part.square().sum() for part in tensors) for tensors in (ours, expected))
    gradients = [torch.autograd.grad(total, of, retain_graph=True) for total in totals]
    for one, other in zip((*ours, *gradients[0]), (*expected, *gradients[1]), strict=True):
        close(one, other)


# --- packing


@pytest.mark.parametrize(
    ("lengths", "size"), [([6, 2, 4, 1], 6), ([1], 1), ([3, 3, 3], 3), ([1, 5, 5, 2], 8)]
)
def test_packing_is_that_of_torch_and_gradients_pass_through_both_ways(lengths: list[int], size: int):
    host = torch.tensor(lengths)
    x = torch.randn(len(lengths), size, 3, dtype=torch.float64)
    expected = pack_padded_sequence(x, host, batch_first=True, enforce_sorted=False)
    packing = Packing(host, size, x.device)
    packed = packing.pack(x)
    for one, other in zip(packed, expected, strict=True):
        assert torch.equal(one, other)
    padded, _ = pad_packed_sequence(expected, batch_first=True, total_length=size)
    assert torch.equal(packing.unpack(packed, size), padded)
    weight = torch.randn(x.shape, dtype=torch.float64)
    (packing.unpack(packing.pack(x.requires_grad_()), size) * weight).sum().backward()
    assert torch.equal(x.grad, weight * (torch.arange(size) < host.unsqueeze(1)).unsqueeze(2))


# --- a layer on a GPU, whose kernels a CPU has too, and the loop over its steps


def run_loop(rnn: nn.RNNBase, steps: Any, start: Any) -> Any:
    return run_step_by_step(rnn, steps, start, recurrent_dropout=0.0)


def run_padded(rnn: nn.LSTM, steps: Any, start: Any) -> Any:
    return run_padded_lstm(rnn, steps)


LAYERS = [*itertools.product((run_cudnn_layer, run_loop), ("lstm", "gru", "rnn"), (False, True))]
LAYERS += [(run_padded, "lstm", True)]


@pytest.mark.parametrize(("run", "cell", "packed"), LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_is_what_torch_computes(run: Any, cell: str, packed: bool, bidirectional: bool):
    rnn, x = layer(cell, bidirectional=bidirectional), inputs().requires_grad_()
    steps: Any = x.transpose(0, 1)
    state = [torch.randn(2 if bidirectional else 1, 4, 4, dtype=torch.float64) for _ in range(2)]
    if packed:
        steps, start, torchs = Packing(LENGTHS, 6, x.device).pack(x), None, None
    else:
        start, torchs = (tuple(state), tuple(state)) if cell == "lstm" else ((state[0],), state[0])
    ours, expected = parts(*run(rnn, steps, start)), parts(*rnn(steps, torchs))
    same_with_gradients(ours, expected, [x, *rnn.parameters()])


@pytest.mark.parametrize("has_bf16", [False, True])
def test_autocast_gives_its_type_and_computes_in_it_where_cudnn_can(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seq2seq.fast, "has_bf16_layers", lambda: has_bf16)
    rnn, x = layer("lstm", torch.float32), inputs(torch.float32).transpose(0, 1)
    seen, run = [], torch.lstm

    def spy(entries, start, flat, *settings):
        seen.extend(part.dtype for part in (entries, *start, *flat))
        return run(entries, start, flat, *settings)

    with monkeypatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(torch, "lstm", spy)
        output, *final = parts(*run_cudnn_layer(rnn, x, None))
    assert set(seen) == {torch.bfloat16 if has_bf16 else torch.float32}
    assert {part.dtype for part in (output, *final)} == {torch.bfloat16}
    torch.testing.assert_close(output.float(), rnn(x)[0], rtol=0.05, atol=0.02)
    output.float().sum().backward()
    assert all(weight.grad is not None and weight.grad.dtype == torch.float32 for weight in rnn.parameters())


# --- gradients of all steps at once, and single steps of a search


def test_gradients_of_a_stepwise_linear() -> None:
    def run(offsets: Tensor, weight: Tensor, other: Tensor, x: Tensor, y: Tensor) -> Tensor:
        product = StepwiseLinear(offsets, weight, other)
        return torch.stack([product(*step).sin() for step in zip(x, y, strict=True)])

    offsets, weight, other = double(4, 5, 3), double(3, 2), double(3, 1)
    x, y = double(4, 5, 2), double(4, 5, 1)
    close(run(offsets, weight, other, x, y), (offsets + x @ weight.t() + y @ other.t()).sin())
    assert torch.autograd.gradcheck(run, (offsets, weight, other, x, y))


@pytest.mark.parametrize("leading", [(3,), (3, 2)])
def test_gradients_of_a_stepwise_product(leading: tuple[int, ...]) -> None:
    def run(matrix: Tensor, x: Tensor) -> Tensor:
        product = StepwiseProduct(matrix, len(x))
        return torch.stack([product(step).sin() for step in x])

    matrix, x = double(*leading, 4, 5), double(6, *leading, 1, 4)
    close(run(matrix, x), torch.stack([(step @ matrix).sin() for step in x]))
    assert torch.autograd.gradcheck(run, (matrix, x))


def test_under_autocast_a_stepwise_product_is_that_of_bfloat16() -> None:
    matrix, x = torch.randn(2, 3, 4, requires_grad=True), torch.randn(1, 2, 1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        product = StepwiseProduct(matrix, 1)(x[0])
        assert product.dtype is torch.bfloat16
        torch.testing.assert_close(product, x[0] @ matrix)
    product.float().sum().backward()
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
    assert join_gates(make("bahdanau-gru").decoder.rnn.cells) is None  # other cells have none


# --- the additive score in half precision


def plain(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
    """Evaluate the formula as it is written."""
    hidden = (score.query(queries.state).unsqueeze(2) + score.key(states).unsqueeze(1)).tanh()
    return score.energy(hidden).squeeze(-1).unsqueeze(1)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("weight_scale", [0.1, 1.5])
def test_the_additive_score_is_as_precise_as_a_plain_tanh(weight_scale: float, autocast: bool) -> None:
    """The inputs are exact in bfloat16; gradients are as precise too."""
    draw, size = torch.Generator().manual_seed(1), 256
    score = AdditiveScore(size, size, AttentionConfig(attention_size=size)).double()
    for name, weight in score.named_parameters():
        scale = 0.2 if name == "energy.weight" else weight_scale / size**0.5
        weight.data.copy_((scale * torch.randn(weight.shape, generator=draw)).bfloat16())
    states = [torch.randn(8, n, size, generator=draw).bfloat16().double() for n in (6, 20)]
    position = torch.zeros(8, 6, dtype=torch.long)

    def evaluate(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
        return score.score(queries, score.project_keys(states))

    exact = evaluate(score, Queries(states[0], position), states[1]).detach()
    close(exact, plain(score, Queries(states[0], position), states[1]))
    dtype = torch.float32 if autocast else torch.bfloat16
    rounded, errors, gradients = copy.deepcopy(score).to(dtype), [], []
    for function in (evaluate, plain):
        state, encoded = (part.to(dtype).requires_grad_() for part in states)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = function(rounded, Queries(state, position), encoded)
        errors.append(float((result.detach() - exact).square().mean().sqrt()))
        gradients.append(torch.autograd.grad(result.sum(), [state, encoded, rounded.energy.weight]))
    assert errors[0] < 1.02 * errors[1]
    torch.testing.assert_close(*gradients, rtol=0.05, atol=0.05)
