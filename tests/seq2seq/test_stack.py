"""Recurrent layers against torch's own, in one call and step by step, with gradients and dropout."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq import Seq2SeqConfig
from seq2seq.stack import RecurrentStack, StepwiseStack

LENGTHS = torch.tensor([6, 2, 4, 1])


def close(left: Tensor, right: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def make_stack(
    cell: str, layers: int, *, bidirectional: bool = False, dropout: float = 0.0
) -> RecurrentStack:
    """Create a stack with 5 inputs and hidden size 4 per direction."""
    config = Seq2SeqConfig(cell=cell, num_layers=layers, dropout=dropout)
    torch.manual_seed(0)
    return RecurrentStack(config, 5, 4, bidirectional).double()


def run_torch_layers(
    stack: RecurrentStack, x: Tensor, start: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one of torch's modules per layer, with the weights of ``stack``."""
    kind = nn.LSTM if stack.is_lstm else nn.GRU
    directions = 2 if stack.plain.bidirectional else 1
    finals = []
    for i in range(len(stack.layers) // directions):
        rnn = kind(x.size(2), 4, bidirectional=directions == 2).double()
        weights = itertools.chain(*stack.layers[directions * i :])
        for parameter, weight in zip(rnn.parameters(), weights, strict=False):
            parameter.data.copy_(weight)
        layer_start = tuple(part[directions * i : directions * (i + 1)] for part in start)
        out, final = rnn(x, layer_start if stack.is_lstm else layer_start[0])
        x = x + out if i >= 2 else out
        finals.append(final if stack.is_lstm else (final,))
    return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_stack_equals_torchs_layers_with_residuals_from_the_third(
    cell: str, layers: int, bidirectional: bool
) -> None:
    stack = make_stack(cell, layers, bidirectional=bidirectional)
    x = double(7, 3, 5)
    start = tuple(double(2, layers * (2 if bidirectional else 1), 3, 4))
    start = start if cell == "lstm" else start[:1]
    out, final = stack(x, start)
    expected, expected_final = run_torch_layers(stack, x, start)
    close(out, expected)
    assert len(final) == len(expected_final)
    for left, right in zip(final, expected_final, strict=True):
        close(left, right)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_two_layers_are_one_module_of_torch(cell: str) -> None:
    """So that they are as fast as torch's own."""
    stack = make_stack(cell, 2)
    assert [type(part) for part in stack.children()] == [
        {"lstm": nn.LSTM, "gru": nn.GRU}[cell],
        nn.ModuleList,
    ]
    assert (stack.plain.num_layers, len(stack.residual)) == (2, 0)


@pytest.mark.parametrize("layers", [2, 4])
def test_packed_sequences_equal_each_sequence_alone(layers: int) -> None:
    stack, x = make_stack("lstm", layers, bidirectional=True), double(4, 6, 5)
    packed, final = stack(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    out, _ = pad_packed_sequence(packed, batch_first=True)
    for row, length in enumerate(LENGTHS):
        alone, alone_final = stack(x[row, :length].unsqueeze(1))
        close(out[row, :length], alone[:, 0])
        for left, right in zip(final, alone_final, strict=True):
            close(left[:, row], right[:, 0])


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("cell", ["lstm", "gru", "layer-norm-lstm", "min-gru", "min-lstm"])
@pytest.mark.parametrize("fed_size", [0, 2, 5])
def test_the_stepwise_stack_equals_the_stack_and_its_gradients(cell: str, layers: int, fed_size: int) -> None:
    """Seven steps; the input is split into features known for all steps and features fed step by step."""
    stack = make_stack(cell, layers)
    x, start = double(7, 3, 5), double(2, layers, 3, 4)
    expected, _ = stack(x, (start[0], start[1]))
    known, fed = x[..., : 5 - fed_size], x[..., 5 - fed_size :]
    cells = StepwiseStack(stack, known)
    h, c = list(start[0]), list(start[1])
    outputs = torch.stack([cells(t, fed[t], h, c)[-1] for t in range(7)])
    close(outputs, expected)
    weight = torch.randn_like(expected)
    inputs = (x, start, *stack.parameters())
    for left, right in zip(
        torch.autograd.grad((outputs * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        close(left, right, 1e-10)


def one_step(stack: RecurrentStack, x: Tensor, whole: bool) -> Tensor:
    """Compute one step from x (N, X) and states of 1, by the stack or by ``StepwiseStack``."""
    ones = torch.ones(len(stack.layers), len(x), 4, dtype=torch.float64)
    if whole:
        return stack(x.unsqueeze(0), (ones, ones))[0][0]
    return StepwiseStack(stack, x.unsqueeze(0))(0, x[:, :0], list(ones), list(ones))[-1]


def cut_second_layer_input(stack: RecurrentStack) -> None:
    """Make the second layer ignore the first, and so the dropout between them."""
    with torch.no_grad():
        stack.layers[1][0].zero_()


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_dropout_is_applied_between_the_layers(layers: int, whole: bool) -> None:
    """Equal rows stay equal without it; the output of the last layer is never dropped."""
    stack, x = make_stack("gru", layers, dropout=0.5), torch.ones(50, 5, dtype=torch.float64)
    if layers == 3:
        cut_second_layer_input(stack)  # leaves only the dropout below the third layer
    stack.eval()
    assert one_step(stack, x, whole).std(0).max() < 1e-12
    stack.train()
    out = one_step(stack, x, whole)
    assert out.std(0).min() > 1e-3
    assert (out != 0).all()


@pytest.mark.parametrize("whole", [True, False])
def test_dropout_is_not_applied_to_the_residual_branch(whole: bool) -> None:
    """Layers whose weights are 0 add the same constant to every input, whatever the dropout."""
    stack, x = make_stack("lstm", 4, dropout=0.5), double(50, 5)
    cut_second_layer_input(stack)
    with torch.no_grad():
        for parameter in stack.residual.parameters():
            parameter.zero_()
    ones = torch.ones(2, 50, 4, dtype=torch.float64)
    below = stack.eval().plain(x.unsqueeze(0), (ones, ones))[0][0]
    added = 0.5 * math.tanh(0.5)  # o tanh(f c + i g): all gates are a half, c is 1 and g is 0
    close(one_step(stack.train(), x, whole), below + 2 * added)
