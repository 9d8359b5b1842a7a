"""Sparse, hard and monotonic attention: the selected positions and their gradients."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from seq2seq import formulas
from seq2seq.config import ReinforceConfig
from seq2seq.normalisers import Monotonic, Reinforce, StraightThrough, entmax15, sparsemax
from seq2seq.scores import Past, Queries
from tests.kits.contract import seeded_float64
from tests.kits.recurrent import close

H = 3
SPARSE = pytest.mark.parametrize("function", [sparsemax, entmax15])


_float64 = pytest.fixture(autouse=True)(seeded_float64)


def queries(rows: int, size: int, past: Past | None = None) -> Queries:
    """Return one query per sentence with a state of zeros."""
    return Queries(torch.zeros(rows, 1, size), torch.zeros(rows, 1, dtype=torch.long), past)


@SPARSE
def test_sparse_weights_and_their_gradients(function: Callable[[Tensor], Tensor]) -> None:
    """Ties get equal weights, entries far below get 0, and one alone gets 1; with two derivatives."""
    z = torch.tensor([0.3, 0.3, 0.1, -0.2, -9.0, -math.inf])
    p = function(z)
    close(p.sum(), torch.tensor(1.0))
    assert p[0] == p[1] > p[2] > p[3] >= 0
    assert p[4] == p[5] == 0
    close(function(z + 1000), p)
    assert function(torch.tensor([-math.inf, -50.0])).tolist() == [0, 1]
    full = (2 * torch.randn(3, 7)).requires_grad_()
    close(function(full), torch.stack([getattr(formulas, function.__name__)(row) for row in full]))
    assert torch.autograd.gradcheck(function, full)
    assert torch.autograd.gradgradcheck(function, full)
    masked = torch.randn(4, 6)
    masked[1, 2:4] = -math.inf
    (grad,) = torch.autograd.grad(function(masked.requires_grad_()).square().sum(), masked)
    assert grad.isfinite().all()
    assert (grad[1, 2:4] == 0).all()
    close(grad.sum(-1), torch.zeros(4))


@SPARSE
def test_a_score_that_is_nan_makes_its_weights_nan(function: Callable[[Tensor], Tensor]) -> None:
    """So that training ends as diverged, and not by an index out of range."""
    p = function(torch.tensor([[0.0, math.nan, 1.0], [0.0, 0.0, 0.0]]))
    assert p[0].isnan().any()
    close(p[1], torch.full((3,), 1 / 3))


# --- one position -------------------------------------------------------------------------------------------


def test_straight_through_selects_by_scores_and_gives_zeros_and_ones() -> None:
    """By scores, not by weights: the softmax rounds the first three to one third in float32."""
    scores = torch.tensor([[[[0.0, 1e-9, 2e-9, -math.inf]]]], dtype=torch.float32)
    assert scores.softmax(-1)[..., :3].unique().numel() == 1
    assert StraightThrough(1)(scores, queries(1, 1)).weights.tolist() == [[[[0, 0, 1, 0]]]]
    weights = StraightThrough(1)(torch.randn(2, 3, 4, 5), queries(2, 1)).weights
    assert set(weights.unique().tolist()) == {0.0, 1.0}


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    """Two heads, 40,000 samples each, within five standard deviations."""
    scores = torch.tensor([[[0.0, 1.5, -1.0, 0.5, -math.inf]], [[-math.inf, 0.0, -4.0, -math.inf, 0.1]]])
    n, p = 40_000, scores.softmax(-1)
    weights, (logp, *_) = Reinforce(H)(scores.expand(n, -1, -1, -1), queries(n, H))
    frequency = weights.mean(0)
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert (frequency[p == 0] == 0).all()
    close(logp, (weights * p).sum(-1).log().sum(1))
    joint, both = p[0, 0].outer(p[1, 0]), torch.einsum("ni,nj->ij", weights[:, 0, 0], weights[:, 1, 0]) / n
    assert ((both - joint).abs() <= 5 * (joint * (1 - joint) / n).sqrt()).all()  # heads are independent
    rounded = Reinforce(1)(torch.zeros(1, 1, 1, 3, dtype=torch.bfloat16), queries(1, 1))
    assert rounded.weights.dtype == torch.bfloat16
    assert float(rounded.choices.logp) == pytest.approx(-math.log(3), rel=1e-6)  # in float32 or better


def test_gradients_of_reinforce() -> None:
    """That of the scores is one-hot minus softmax, that of the value trains the baseline alone."""
    normaliser, scores = Reinforce(H), torch.randn(4, 1, 5, 7, requires_grad=True)
    state = torch.randn(4, 5, H, requires_grad=True)
    asked = Queries(state, torch.zeros(4, 5, dtype=torch.long))
    weights, (logp, value, *_) = normaliser(scores, asked)
    assert normaliser.baseline is not None
    close(value, state @ normaliser.baseline.weight[0] + normaliser.baseline.bias)
    assert torch.autograd.grad(value.sum(), state, allow_unused=True, retain_graph=True) == (None,)
    (gradient,) = torch.autograd.grad(logp.sum(), scores)
    close(gradient, weights - scores.softmax(-1))
    assert not weights.requires_grad
    tested = normaliser.eval()(scores, asked)
    assert torch.equal(tested.weights, one_hot(scores.argmax(-1), 7).double())
    assert tested.choices is None


def test_the_weighted_reward_and_entropy_of_reinforce() -> None:
    """lambda_r multiplies the log-probability, lambda_e the entropy over the words that are visible."""
    scores = torch.tensor([[[[0.0, 1.5, -1.0, -math.inf]], [[0.2, -math.inf, 0.1, 0.3]]]], requires_grad=True)
    settings = ReinforceConfig(baseline="moving-average", reward_weight=0.25, entropy_weight=2.0)
    normaliser, default = Reinforce(H, settings), Reinforce(H)
    normaliser.average.fill_(-7.0)
    torch.manual_seed(3)
    weights, (logp, value, entropy, _) = normaliser(scores, queries(1, H))
    torch.manual_seed(3)
    plain = default(scores, queries(1, H))
    assert torch.equal(weights, plain.weights)
    close(logp, 0.25 * plain.choices.logp)
    assert plain.choices.entropy is None
    assert value.tolist() == [[-7.0]]
    expected = sum(-p * math.log(p) for p in scores.softmax(-1).flatten().tolist() if p > 0)
    close(entropy, torch.tensor([[2 * expected]]))
    (grad,) = torch.autograd.grad(entropy.sum(), scores)
    assert grad.isfinite().all()
    assert list(normaliser.state_dict()) == ["average"]  # so that a checkpoint keeps it
    assert not list(normaliser.parameters())


# --- monotonic ----------------------------------------------------------------------------------------------


def test_monotonic_weights_are_the_expected_alignment() -> None:
    """In training, with the noise that the same seed draws; words that are masked are never stopped at."""
    monotonic, scores = Monotonic(1), 2 * torch.randn(3, 2, 1, 6)
    torch.nn.init.constant_(monotonic.bias, 0.3)
    scores[1, :, :, 4:] = -math.inf
    last = torch.randn(3, 1, 2, 6).softmax(-1)
    last[1, :, :, 4:] = 0
    torch.manual_seed(4)
    weights = monotonic(scores, queries(3, 1, Past(last, last))).weights
    torch.manual_seed(4)
    noisy = scores + torch.randn_like(scores)
    for b, head in itertools.product(range(3), range(2)):
        expected = formulas.monotonic(noisy[b, head, 0], last[b, 0, head], monotonic.bias)
        close(weights[b, head, 0], expected)
    assert (weights[1, :, :, 4:] == 0).all()


def test_gradients_of_monotonic_attention() -> None:
    monotonic, scores = Monotonic(1), torch.randn(2, 1, 1, 5, requires_grad=True)
    last = torch.randn(2, 1, 1, 5).softmax(-1).requires_grad_()

    def run(scores: Tensor, last: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(1)
        weights: Tensor = monotonic(scores, queries(2, 1, Past(last, last))).weights
        return weights

    assert torch.autograd.gradcheck(run, (scores, last, monotonic.bias))
    far = torch.full((1, 1, 1, 60), -30.0, requires_grad=True)  # products of tiny and of vanishing factors
    past = Past(torch.full_like(far, 1 / 60), torch.zeros_like(far))
    weights = monotonic(far * torch.tensor([1.0, -1.0]).repeat(30), queries(1, 1, past)).weights
    weights.square().sum().backward()
    assert weights.isfinite().all()
    assert far.grad is not None
    assert far.grad.isfinite().all()
