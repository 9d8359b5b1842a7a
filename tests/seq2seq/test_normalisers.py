"""Soft and hard attention: the selected positions and their gradients."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seq2seq.attention import Attention
from seq2seq.config import AttentionConfig
from seq2seq.normalisers import (
    Monotonic,
    Reinforce,
    ReinforceConfig,
    StraightThrough,
    _sum_prefixes,
    cumulative_sum,
    entmax15,
    sparsemax,
)
from seq2seq.scores import Past, Queries
from tests.kits.attention import CASES, E, H, attend, close, example, float64, make

_float64 = pytest.fixture(autouse=True)(float64)


def queries(rows: int, size: int, past: Past | None = None) -> Queries:
    """Return one query per sentence with a state of zeros."""
    return Queries(torch.zeros(rows, 1, size), torch.zeros(rows, 1, dtype=torch.long), past)


def test_soft_attention_approaches_hard_attention_as_scores_grow() -> None:
    queries, states = example("dot")
    hard = attend(make("dot", normaliser="straight-through"), queries, states)
    distances = []
    for scale in (1.0, 10.0, 100.0, 1000.0, 10000.0):
        soft = attend(make("dot"), queries._replace(state=scale * queries.state), states)
        distances.append(float((soft.weights - hard.weights).abs().max()))
    assert distances[0] > 0.3
    assert all(later < earlier for earlier, later in itertools.pairwise(distances))
    assert distances[-1] < 1e-9
    close(soft.context, hard.context)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("scope", ["global", "local-m"])
@pytest.mark.parametrize("case", CASES)
def test_the_straight_through_gradient_is_that_of_the_softmax(case: str, scope: str, training: bool) -> None:
    hard, soft = make(case, scope, "straight-through").train(training), make(case, scope)
    soft.load_state_dict(hard.state_dict())
    queries, states = example(case)
    for tensor in (queries.state, states):
        tensor.requires_grad_()
    upstream = None
    gradients = []
    for attention in (hard, soft):
        weights = attend(attention, queries, states).weights
        upstream = torch.randn_like(weights) if upstream is None else upstream
        inputs = (queries.state, states, *attention.parameters())
        gradients.append(torch.autograd.grad((weights * upstream).sum(), inputs, allow_unused=True))
    for left, right in zip(*gradients, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            close(left, right)
    assert any(gradient is not None and gradient.abs().max() > 1e-3 for gradient in gradients[0])


def test_straight_through_selects_by_scores_not_by_weights() -> None:
    """The softmax rounds all three of these to one third in float32."""
    scores = torch.tensor([[[[0.0, 1e-9, 2e-9, -math.inf]]]], dtype=torch.float32)
    assert scores.softmax(-1)[..., :3].unique().numel() == 1
    assert StraightThrough(1)(scores, queries(1, 1)).weights.tolist() == [[[[0, 0, 1, 0]]]]


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    """Two heads, 40,000 samples each, within five standard deviations."""
    scores = torch.tensor([[[0.0, 1.5, -1.0, 0.5, -math.inf]], [[-math.inf, 0.0, -4.0, -math.inf, 0.1]]])
    n, p = 40_000, scores.softmax(-1)
    weights, logp, *_ = Reinforce(H)(scores.expand(n, -1, -1, -1), queries(n, H))
    frequency = weights.mean(0)
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert (frequency[p == 0] == 0).all()
    close(logp, (weights * p).sum(-1).log().sum(1))
    both = (
        torch.einsum("ni,nj->ij", weights[:, 0, 0], weights[:, 1, 0]) / n
    )  # the heads are sampled independently
    joint = p[0, 0].outer(p[1, 0])
    assert ((both - joint).abs() <= 5 * (joint * (1 - joint) / n).sqrt()).all()


def test_the_log_probability_of_a_sample_is_at_least_float32() -> None:
    scores = torch.zeros(1, 1, 1, 3, dtype=torch.bfloat16)
    output = Reinforce(1)(scores, queries(1, 1))
    assert output.weights.dtype == torch.bfloat16
    assert float(output.logp) == pytest.approx(-math.log(3), rel=1e-6)


def test_gradients_of_reinforce() -> None:
    """The gradient of the scores is one-hot minus softmax; the value trains only the baseline."""
    attention, (queries, states) = make("general", "local-m", "reinforce").train(), example("general")
    queries.state.requires_grad_()
    output = attend(attention, queries, states)
    assert output.choice_logp is not None
    assert output.value is not None
    baseline = attention.normaliser.baseline
    close(output.value, queries.state @ baseline.weight[0] + baseline.bias)
    (state_gradient,) = torch.autograd.grad(
        output.value.sum(), queries.state, allow_unused=True, retain_graph=True
    )
    assert state_gradient is None

    soft = make("general", "local-m")
    soft.load_state_dict(attention.state_dict(), strict=False)
    keys = attention.scorer.project_keys(states)
    score_gradient = output.weights - attend(soft, queries, states).weights
    expected = (score_gradient[:, 0].unsqueeze(-1) * keys.unsqueeze(1)).sum(2)  # since a score is s . key
    (state_gradient,) = torch.autograd.grad(output.choice_logp.sum(), queries.state, retain_graph=True)
    close(state_gradient, expected)

    inputs = (queries.state, *attention.parameters())
    assert not output.weights.requires_grad
    assert (
        not output.context.requires_grad
    )  # the values have no parameters, and no gradient flows through the sample
    assert any(
        g is not None for g in torch.autograd.grad(output.choice_logp.sum(), inputs, allow_unused=True)
    )


def test_the_weighted_reward_and_entropy_of_reinforce() -> None:
    """lambda_r multiplies the log-probability, lambda_e the entropy over the words that are visible."""
    scores = torch.tensor([[[[0.0, 1.5, -1.0, -math.inf]], [[0.2, -math.inf, 0.1, 0.3]]]], requires_grad=True)
    settings = ReinforceConfig(baseline="moving-average", reward_weight=0.25, entropy_weight=2.0)
    normaliser, default = Reinforce(H, settings), Reinforce(H)
    normaliser.average.fill_(-7.0)
    torch.manual_seed(3)
    weights, logp, value, entropy = normaliser(scores, queries(1, H))
    torch.manual_seed(3)
    plain = default(scores, queries(1, H))
    assert torch.equal(weights, plain.weights)
    close(logp, 0.25 * plain.logp)
    assert plain.entropy is None
    assert value.tolist() == [[-7.0]]
    expected = sum(-p * math.log(p) for p in scores.softmax(-1).flatten().tolist() if p > 0)
    close(entropy, torch.tensor([[2 * expected]]))
    (grad,) = torch.autograd.grad(entropy.sum(), scores)
    assert grad.isfinite().all()
    assert list(normaliser.state_dict()) == ["average"]  # so that a checkpoint keeps it
    assert not list(normaliser.parameters())


def test_reinforce_samples_in_training_and_takes_the_best_position_at_test() -> None:
    attention, (queries, states) = make("general", normaliser="reinforce"), example("general")
    best = attend(make("general", normaliser="straight-through"), queries, states)
    tested, again = attend(attention, queries, states), attend(attention, queries, states)
    assert torch.equal(tested.weights, again.weights)
    assert best.weights.shape == tested.weights.shape
    attention.train()
    samples = torch.stack([attend(attention, queries, states).weights for _ in range(20)])
    assert samples.std(0).max() > 0
    torch.manual_seed(3)
    first = attend(attention, queries, states)
    torch.manual_seed(3)
    second = attend(attention, queries, states)
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("normaliser", ["softmax", "straight-through"])
def test_only_samples_have_a_log_probability(normaliser: str) -> None:
    output = attend(make("dot", normaliser=normaliser).train(), *example("dot"))
    assert output.choice_logp is None
    assert output.value is None


# --- sparse -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [sparsemax, entmax15])
def test_sparse_weights_do_not_depend_on_a_shift_or_the_order(function: Callable[[Tensor], Tensor]) -> None:
    """Ties get equal weights, entries far below get 0, and one alone gets 1."""
    z = torch.tensor([0.3, 0.3, 0.1, -0.2, -9.0, -math.inf])
    p = function(z)
    close(p.sum(), torch.tensor(1.0))
    assert p[0] == p[1] > p[2] > p[3] >= 0
    assert p[4] == p[5] == 0
    close(function(z + 1000), p)
    order = torch.tensor([5, 2, 0, 4, 1, 3])
    close(function(z[order]), p[order])
    assert function(torch.tensor([-math.inf, -50.0])).tolist() == [0, 1]
    close(function(torch.zeros(3, 7)), torch.full((3, 7), 1 / 7))


def test_cumulative_sums_of_a_gpu_in_its_deterministic_mode() -> None:
    x = torch.randn(2, 3, 7)
    close(_sum_prefixes(x), x.cumsum(-1))
    close(cumulative_sum(x), x.cumsum(-1))


def test_hand_computed_sparse_weights() -> None:
    """Two entries z and 0: sparsemax is (1 + z) / 2; 1.5-entmax has roots that differ by z / 2."""
    z = 0.6
    close(sparsemax(torch.tensor([z, 0.0])), torch.tensor([(1 + z) / 2, (1 - z) / 2]))
    small = (math.sqrt(2 - (z / 2) ** 2) - z / 2) / 2  # x^2 + (x + z / 2)^2 = 1
    close(entmax15(torch.tensor([z, 0.0])), torch.tensor([(small + z / 2) ** 2, small**2]))
    assert sparsemax(torch.tensor([1.0, 0.0])).tolist() == [1, 0]
    close(entmax15(torch.tensor([2.0, 0.0])), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("function", [sparsemax, entmax15])
def test_gradients_of_sparse_weights(function: Callable[[Tensor], Tensor]) -> None:
    """First and second derivatives; masked entries have none."""
    z = torch.randn(4, 6)
    z[1, 2:4] = -math.inf
    full = (2 * torch.randn(3, 7)).requires_grad_()
    assert torch.autograd.gradcheck(function, full)
    assert torch.autograd.gradgradcheck(function, full)
    (grad,) = torch.autograd.grad(function(z.requires_grad_()).square().sum(), z)
    assert grad.isfinite().all()
    assert (grad[1, 2:4] == 0).all()
    close(grad.sum(-1), torch.zeros(4))


def test_a_temperature_divides_the_scores() -> None:
    queries_, states = example("dot")
    warm = Attention(AttentionConfig(score="dot", temperature=2.0), E, E)
    plain = make("dot")
    expected = attend(plain, queries_._replace(state=queries_.state / 2), states)
    close(attend(warm, queries_, states).weights, expected.weights)


# --- monotonic ----------------------------------------------------------------------------------------------


def expected_alignment(p: list[float], last: list[float]) -> list[float]:
    """Raffel et al. 2017, eq. 9, word by word: the probability to arrive at a word, then to stop there."""
    arriving, weights = 0.0, []
    for j, stop in enumerate(p):
        arriving = (arriving * (1 - p[j - 1]) if j else 0.0) + last[j]
        weights.append(stop * arriving)
    return weights


def test_monotonic_weights_are_the_expected_alignment() -> None:
    """In training, with the noise that the same seed draws; words that are masked are never stopped at."""
    monotonic, scores = Monotonic(1), 2 * torch.randn(3, 2, 1, 6)
    torch.nn.init.constant_(monotonic.bias, 0.3)
    scores[1, :, :, 4:] = -math.inf
    last = torch.randn(3, 2, 1, 6).softmax(-1)
    last[1, :, :, 4:] = 0
    torch.manual_seed(4)
    weights = monotonic(scores, queries(3, 1, Past(last, last))).weights
    torch.manual_seed(4)
    p = (scores + 0.3 + torch.randn_like(scores)).sigmoid()
    for b, head in itertools.product(range(3), range(2)):
        expected = expected_alignment(p[b, head, 0].tolist(), last[b, head, 0].tolist())
        close(weights[b, head, 0], torch.tensor(expected))
    assert (weights[1, :, :, 4:] == 0).all()


def test_monotonic_weights_of_certain_choices_are_those_of_the_evaluation() -> None:
    """With scores so large that p is 0 or 1 despite the noise, the expectation is one word or none."""
    monotonic, scores = Monotonic(1), 200 * torch.randn(40, 1, 1, 6).sign()
    last = torch.nn.functional.one_hot(torch.randint(6, (40, 1, 1)), 6).double()
    trained = monotonic(scores, queries(40, 1, Past(last, last))).weights
    tested = monotonic.eval()(scores, queries(40, 1, Past(last, last))).weights
    close(trained, tested)
    assert set(tested.sum(-1).flatten().tolist()) == {0.0, 1.0}
    assert (tested.argmax(-1) >= last.argmax(-1))[tested.sum(-1) > 0].all()


def test_gradients_of_monotonic_attention() -> None:
    monotonic, scores = Monotonic(1), torch.randn(2, 1, 1, 5, requires_grad=True)
    last = torch.randn(2, 1, 1, 5).softmax(-1).requires_grad_()

    def run(scores: torch.Tensor, last: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        weights: torch.Tensor = monotonic(scores, queries(2, 1, Past(last, last))).weights
        return weights

    assert torch.autograd.gradcheck(run, (scores, last, monotonic.bias))
    far = torch.full((1, 1, 1, 60), -30.0, requires_grad=True)  # products of tiny and of vanishing factors
    weights = monotonic(
        far * torch.tensor([1.0, -1.0]).repeat(30),
        queries(1, 1)._replace(past=Past(torch.full_like(far, 1 / 60), torch.zeros_like(far))),
    ).weights
    weights.square().sum().backward()
    assert weights.isfinite().all()
    assert far.grad is not None
    assert far.grad.isfinite().all()


def test_the_monotonic_reader_begins_at_the_first_word() -> None:
    attention, (asked, states) = make("general", normaliser="monotonic"), example("general")
    first = attend(attention, asked._replace(past=None), states).weights
    start = torch.zeros_like(first)
    start[..., 0] = 1
    close(first, attend(attention, asked._replace(past=Past(start, torch.zeros_like(start))), states).weights)
