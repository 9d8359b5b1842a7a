"""The recurrent layers: against torch's own, a step at a time, with their gradients and their dropout."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq import Seq2SeqConfig
from seq2seq.cells import StepwiseLinear
from seq2seq.stack import RecurrentStack, StepwiseStack

LENGTHS = torch.tensor([6, 2, 4, 1])


def close(left: Tensor, right: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def make_stack(
    cell: str, layers: int, *, bidirectional: bool = False, dropout: float = 0.0
) -> RecurrentStack:
    """Reads 5 numbers; 4 a direction."""
    config = Seq2SeqConfig(cell=cell, num_layers=layers, dropout=dropout)
    torch.manual_seed(0)
    return RecurrentStack(config, 5, 4, bidirectional).double()


def by_torch(
    stack: RecurrentStack, x: Tensor, start: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Layers of torch's own, each a module by itself with the weights of ``stack``."""
    kind = nn.LSTM if stack.is_lstm else nn.GRU
    ways = 2 if stack.plain.bidirectional else 1
    finals = []
    for i in range(len(stack.layers) // ways):
        rnn = kind(x.size(2), 4, bidirectional=ways == 2).double()
        for own, given in zip(rnn.parameters(), itertools.chain(*stack.layers[ways * i :]), strict=False):
            own.data.copy_(given)
        own_start = tuple(part[ways * i : ways * (i + 1)] for part in start)
        out, final = rnn(x, own_start if stack.is_lstm else own_start[0])
        x = x + out if i >= 2 else out
        finals.append(final if stack.is_lstm else (final,))
    return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_stack_is_torchs_layers_and_residual_from_the_third(
    cell: str, layers: int, bidirectional: bool
) -> None:
    stack = make_stack(cell, layers, bidirectional=bidirectional)
    x = double(7, 3, 5)
    start = tuple(double(2, layers * (2 if bidirectional else 1), 3, 4))
    start = start if cell == "lstm" else start[:1]
    out, final = stack(x, start)
    expected, expected_final = by_torch(stack, x, start)
    close(out, expected)
    assert len(final) == len(expected_final)
    for left, right in zip(final, expected_final, strict=True):
        close(left, right)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_two_layers_are_one_module_of_torchs(cell: str) -> None:
    """So that they run as fast as ever."""
    stack = make_stack(cell, 2)
    assert [type(part) for part in stack.children()] == [
        {"lstm": nn.LSTM, "gru": nn.GRU}[cell],
        nn.ModuleList,
    ]
    assert (stack.plain.num_layers, len(stack.residual)) == (2, 0)


@pytest.mark.parametrize("layers", [2, 4])
def test_a_stack_runs_packed_rows_as_if_alone(layers: int) -> None:
    stack, x = make_stack("lstm", layers, bidirectional=True), double(4, 6, 5)
    packed, final = stack(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    out, _ = pad_packed_sequence(packed, batch_first=True)
    for row, length in enumerate(LENGTHS):
        alone, alone_final = stack(x[row, :length].unsqueeze(1))
        close(out[row, :length], alone[:, 0])
        for left, right in zip(final, alone_final, strict=True):
            close(left[:, row], right[:, 0])


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("fed_size", [0, 2, 5])
def test_stepwise_is_the_stack_with_its_gradients(cell: str, layers: int, fed_size: int) -> None:
    """A split of the input into known and fed parts, seven steps."""
    stack = make_stack(cell, layers)
    x, start = double(7, 3, 5), double(2, layers, 3, 4)
    expected, _ = stack(x, (start[0], start[1]))
    known, fed = x[..., : 5 - fed_size], x[..., 5 - fed_size :]
    cells = StepwiseStack(stack, known)
    h, c = list(start[0]), list(start[1])
    outputs = torch.stack([cells(t, fed[t], h, c) for t in range(7)])
    close(outputs, expected)
    weight = torch.randn_like(expected)
    wanted = (x, start, *stack.parameters())
    for left, right in zip(
        torch.autograd.grad((outputs * weight).sum(), wanted),
        torch.autograd.grad((expected * weight).sum(), wanted),
        strict=True,
    ):
        close(left, right, 1e-10)


def test_gradients_of_a_product() -> None:
    def run(weight: Tensor, offsets: Tensor, x: Tensor) -> Tensor:
        product = StepwiseLinear(weight, offsets)
        return torch.stack([product(a, b).sin() for a, b in zip(product.offsets.unbind(), x, strict=True)])

    assert torch.autograd.gradcheck(run, (double(3, 2), double(4, 5, 3), double(4, 5, 2)))


def one_step(stack: RecurrentStack, x: Tensor, whole: bool) -> Tensor:
    """The output of a step from x (N, X), by the stack or by ``StepwiseStack``, from states of 1."""
    ones = torch.ones(len(stack.layers), len(x), 4, dtype=torch.float64)
    if whole:
        return stack(x.unsqueeze(0), (ones, ones))[0][0]
    return StepwiseStack(stack, x.unsqueeze(0))(0, x[:, :0], list(ones), list(ones))


def blind(stack: RecurrentStack) -> None:
    """Let the second layer read nothing of the first, and so no dropout."""
    with torch.no_grad():
        stack.layers[1][0].zero_()


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_dropout_stands_between_the_layers(layers: int, whole: bool) -> None:
    """Equal rows stay equal without it; what the last layer gives is never hit."""
    stack, x = make_stack("gru", layers, dropout=0.5), torch.ones(50, 5, dtype=torch.float64)
    if layers == 3:
        blind(stack)  # what is left to be seen is the dropout below the third
    stack.eval()
    assert one_step(stack, x, whole).std(0).max() < 1e-12
    stack.train()
    out = one_step(stack, x, whole)
    assert out.std(0).min() > 1e-3
    assert (out != 0).all()


@pytest.mark.parametrize("whole", [True, False])
def test_dropout_spares_what_a_residual_connection_carries(whole: bool) -> None:
    """Layers without weights add the same to all they are given, which is then seen as it was."""
    stack, x = make_stack("lstm", 4, dropout=0.5), double(50, 5)
    blind(stack)
    with torch.no_grad():
        for parameter in stack.residual.parameters():
            parameter.zero_()
    ones = torch.ones(2, 50, 4, dtype=torch.float64)
    below = stack.eval().plain(x.unsqueeze(0), (ones, ones))[0][0]
    added = 0.5 * math.tanh(0.5)  # o tanh(f c + i g): all gates are a half, c is 1 and g is 0
    close(one_step(stack.train(), x, whole), below + 2 * added)
