"""The loss and its gradients against torch's own cross-entropy; the optimizer and its schedules."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import compare.objective
from compare.objective import Loss, Objective, linear_cross_entropy, reinforce
from compare.optim import OptimConfig, build_optimizer, learning_rate

PAD = 0
ROWS, SIZE, TOKENS = 7, 5, 11


class Hidden(NamedTuple):
    hidden: Tensor
    choice_logp: None = None
    value: None = None


class TinyModel(nn.Module):
    """Each target position sees its own token and the mean of the source."""

    def __init__(self, *, tied: bool = False, bias: bool = True, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(TOKENS, SIZE, dtype=dtype)
        self.output = nn.Linear(SIZE, TOKENS, bias=bias, dtype=dtype)
        if tied:
            self.output.weight = self.embedding.weight

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Hidden:
        memory = (self.embedding(src) * src_mask.unsqueeze(2)).sum(dim=1) / src_mask.sum(dim=1, keepdim=True)
        return Hidden(torch.tanh(self.embedding(tgt_in) + memory.unsqueeze(1)))


def batch() -> tuple[Tensor, ...]:
    """Four pairs, with padding on both sides of three; one target is the end alone."""
    generator = torch.Generator().manual_seed(4)
    src_mask = torch.arange(6) < torch.tensor([[6], [2], [3], [1]])
    tgt_mask = torch.arange(5) < torch.tensor([[4], [5], [1], [2]])
    src, tgt_in, tgt_out = (torch.randint(1, TOKENS, (4, size), generator=generator) for size in (6, 5, 5))
    return src * src_mask, src_mask, tgt_in * tgt_mask, tgt_out * tgt_mask, tgt_mask


def expected_loss(model: TinyModel, parts: tuple[Tensor, ...], smoothing: float) -> Tensor:
    """The loss that torch computes from all logits at once; padding is the ignored index."""
    src, src_mask, tgt_in, tgt_out, _ = parts
    logits = model.output(model.features(src, src_mask, tgt_in).hidden)
    return functional.cross_entropy(
        logits.flatten(0, 1),
        tgt_out.flatten(),
        label_smoothing=smoothing,
        ignore_index=PAD,
        reduction="sum",
    )


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Gradients by parameter name."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden (N, D), weight (V, D), bias (V,) and targets (N,)."""
    generator = torch.Generator().manual_seed(5)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((ROWS, SIZE), (TOKENS, SIZE), (TOKENS,))
    )
    return hidden, weight, bias, torch.tensor([0, 10, 3, 3, 7, 1, 2])


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chunk", [1, 3 * TOKENS, 5 * TOKENS + 1, 1 << 22])  # 1, 3, 5 and all rows at once
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_are_those_of_torch(
    chunk: int, smoothing: float, tied: bool, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare.objective, "CHUNK_ELEMENTS", chunk)
    model, parts = TinyModel(tied=tied, bias=bias), batch()
    loss = Objective(model, smoothing)(*parts)
    expected = expected_loss(model, parts, smoothing)
    close(loss.minimised, expected)
    close(loss.nll, expected_loss(model, parts, 0.0).detach())
    assert loss.tokens == 12
    found, reference = gradients(model, loss.minimised / loss.tokens), gradients(model, expected / 12)
    assert len(found) == 3 - tied - (not bias)
    for name, gradient in reference.items():
        close(found[name], gradient)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradcheck(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.objective, "CHUNK_ELEMENTS", 2 * TOKENS)
    hidden, weight, bias, targets = inputs()

    def loss(*tensors: Tensor) -> Tensor:
        return linear_cross_entropy(*tensors, targets, smoothing)[0]

    assert torch.autograd.gradcheck(loss, (hidden, weight, bias))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_uniform_logits_cost_log_of_the_vocabulary(smoothing: float) -> None:
    hidden, weight, bias, targets = inputs()
    smoothed, nll = linear_cross_entropy(hidden, 0 * weight, 0 * bias + 3.0, targets, smoothing)
    assert smoothed.item() == pytest.approx(ROWS * math.log(TOKENS), rel=1e-14)
    close(nll, torch.full((ROWS,), math.log(TOKENS), dtype=torch.float64))


def test_the_smoothed_loss_is_least_at_the_smoothed_target() -> None:
    """There it is the entropy of (1 - s) on the reference and s / V everywhere, and its gradient is 0."""
    smoothing, rest = 0.2, 0.2 / TOKENS
    target = torch.tensor([4])
    logp = torch.full((TOKENS,), math.log(rest), dtype=torch.float64)
    logp[4] = math.log(1 - smoothing + rest)
    bias = (logp + 5.0).requires_grad_()  # a shift of all logits changes nothing
    zeros = torch.zeros(TOKENS, 1, dtype=torch.float64)
    smoothed, nll = linear_cross_entropy(zeros[:1], zeros, bias, target, smoothing)
    assert smoothed.item() == pytest.approx(-(logp.exp() * logp).sum().item(), rel=1e-12)
    assert nll.item() == pytest.approx(-math.log(1 - smoothing + rest), rel=1e-12)
    close(torch.autograd.grad(smoothed, bias)[0], torch.zeros_like(bias))


def test_padding_takes_no_part() -> None:
    model = TinyModel()
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    objective = Objective(model, 0.1)
    loss = objective(src, src_mask, tgt_in, tgt_out, tgt_mask)
    garbage = torch.full_like(tgt_in, 9)
    other = objective(
        src, src_mask, tgt_in.where(tgt_mask, garbage), tgt_out.where(tgt_mask, garbage), tgt_mask
    )
    assert torch.equal(other.minimised, loss.minimised)
    assert torch.equal(other.nll, loss.nll)
    assert other.tokens == loss.tokens == int(tgt_mask.sum())
    before, after = gradients(model, loss.minimised), gradients(model, other.minimised)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_real_token_may_have_the_id_of_padding() -> None:
    """The mask alone says what is real."""
    model = TinyModel()
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    tgt_out = tgt_out.clone()
    tgt_out[1] = PAD
    loss = Objective(model, 0.0)(src, src_mask, tgt_in, tgt_out, tgt_mask)
    logp = model.output(model.features(src, src_mask, tgt_in).hidden).log_softmax(dim=2)
    close(loss.minimised, -logp.gather(2, tgt_out.unsqueeze(2)).squeeze(2)[tgt_mask].sum())
    assert loss.tokens == 12


def test_a_batch_costs_what_its_pairs_cost() -> None:
    parts = batch()
    objective = Objective(TinyModel(), 0.1)
    whole = objective(*parts)
    pairs = [objective(*(part[row : row + 1] for part in parts)) for row in range(4)]
    assert [pair.tokens for pair in pairs] == [4, 5, 1, 2]
    close(whole.minimised, sum(pair.minimised for pair in pairs))
    close(whole.nll, sum(pair.nll for pair in pairs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_nll_holds_no_graph(smoothing: float) -> None:
    loss: Loss = Objective(TinyModel(), smoothing)(*batch())
    assert loss.minimised.requires_grad
    assert not loss.nll.requires_grad
    total = 0.0 + loss.nll
    assert total.grad_fn is None
    assert loss.nll.untyped_storage().data_ptr() != loss.minimised.untyped_storage().data_ptr()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode_no_gradient_is_computed(mode: type, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, parts = Objective(TinyModel(), 0.1), batch()
    expected = objective(*parts)
    monkeypatch.delattr(compare.objective, "_accumulate")
    with mode():
        loss = objective(*parts)
    assert torch.equal(loss.minimised, expected.minimised)
    assert torch.equal(loss.nll, expected.nll)
    assert not loss.minimised.requires_grad


def test_no_logits_for_the_whole_batch_ever_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.objective, "CHUNK_ELEMENTS", 3 * TOKENS)
    seen: list[int] = []
    losses = compare.objective._losses

    def spy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        seen.append(logits.numel())
        return losses(logits, targets, smoothing)

    monkeypatch.setattr(compare.objective, "_losses", spy)
    Objective(TinyModel(), 0.1)(*batch())
    assert seen == [3 * TOKENS] * 4  # 12 real tokens of 20 places, 3 at once


def test_large_logits_stay_finite() -> None:
    hidden, weight, bias, targets = inputs(torch.float32)
    smoothed, nll = linear_cross_entropy(1e4 * hidden, weight, bias, targets, 0.1)
    found = torch.autograd.grad(smoothed, (hidden, weight, bias))
    assert all(torch.isfinite(part).all() for part in (smoothed, nll, *found))


def test_no_rows_cost_nothing() -> None:
    hidden, weight, bias, targets = inputs()
    smoothed, nll = linear_cross_entropy(hidden[:0], weight, bias, targets[:0], 0.1)
    assert (smoothed.item(), nll.numel()) == (0.0, 0)
    assert not torch.autograd.grad(smoothed, weight)[0].any()


def test_bf16_autocast_is_close_to_fp32() -> None:
    model, parts = TinyModel(dtype=torch.float32), batch()
    objective = Objective(model, 0.1)
    loss = objective(*parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = objective(*parts)
    assert narrow.minimised.dtype == narrow.nll.dtype == torch.float32
    torch.testing.assert_close(narrow.minimised, loss.minimised, rtol=1e-2, atol=0)
    expected = gradients(model, loss.minimised)
    for name, gradient in gradients(model, narrow.minimised).items():
        assert gradient.dtype == torch.float32
        error = (gradient - expected[name]).norm() / expected[name].norm()
        assert 0 < error < 0.01  # bf16 keeps 8 bits; 0 would mean that nothing ran in bf16


def test_under_autocast_only_the_product_is_narrow() -> None:
    hidden, weight, bias, targets = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        smoothed, nll = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    logits = (hidden.bfloat16() @ weight.bfloat16().t()).float() + bias
    for found, smoothing in ((smoothed, 0.1), (nll.sum(), 0.0)):
        expected = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-6, atol=0)


def rates(updates: int, **settings: float | int | str) -> list[float]:
    """The learning rates of a training of ``updates`` updates with peak 2."""
    config = OptimConfig(learning_rate=2.0, **settings)
    return [learning_rate(config, update, updates) for update in range(1, updates + 1)]


# Warm-up of 4 rises by 2 / 4. Then 4 updates are left: the peak, and by quarters down to 2 / 4 (linear),
# along (1 + cos(pi x)) for x = 0, 1/4, 1/2, 3/4 (cosine), or by (update / 4) ** -1/2 (inverse square root).
@pytest.mark.parametrize(
    ("schedule", "after"),
    [
        ("constant", [2.0, 2.0, 2.0, 2.0]),
        ("linear", [2.0, 1.5, 1.0, 0.5]),
        ("cosine", [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]),
        ("inverse-sqrt", [2 * math.sqrt(4 / update) for update in (5, 6, 7, 8)]),
    ],
)
def test_schedules_by_hand(schedule: str, after: list[float]) -> None:
    found = rates(8, schedule=schedule, warmup_updates=4)
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, *after], rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_falling_schedules_end_near_0_and_never_rise(schedule: str) -> None:
    found = rates(1000, schedule=schedule, warmup_updates=100)
    assert max(found) == found[99] == 2.0
    assert all(one >= other for one, other in itertools.pairwise(found[99:]))
    assert 0 < found[-1] <= 2.0 / 900 * (1 + 1e-12)


def test_training_without_warmup_begins_at_the_peak() -> None:
    assert rates(4, schedule="linear", warmup_updates=0) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    assert rates(4, schedule="constant", warmup_updates=0) == [2.0] * 4
    found = rates(4, schedule="inverse-sqrt", warmup_updates=0)
    assert found == pytest.approx([2.0, 2 / math.sqrt(2), 2 / math.sqrt(3), 1.0])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse-sqrt"])
@pytest.mark.parametrize("warmup", [5, 6, 50])
def test_training_may_end_within_the_warmup(schedule: str, warmup: int) -> None:
    expected = [2.0 * update / warmup for update in range(1, 6)]
    assert rates(5, schedule=schedule, warmup_updates=warmup) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"schedule": "step"}, "inverse-sqrt"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": math.inf}, "learning_rate"),
        ({"warmup_updates": -1}, "warmup_updates"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": math.nan}, "weight_decay"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"beta2": 0.0}, "beta2"),
        ({"beta2": 1.0}, "beta2"),
        ({"beta2": math.nan}, "beta2"),
    ],
)
def test_what_would_diverge_is_refused(setting: dict[str, float | int | str], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        OptimConfig(**setting)
    assert "\n" not in str(caught.value)
    assert str(*setting.values()) in str(caught.value)


def test_the_optimizer_without_decay_is_adam() -> None:
    config = OptimConfig(learning_rate=0.01, beta2=0.9, weight_decay=0.0)
    ours, theirs = TinyModel(), TinyModel()
    optimizer = build_optimizer(ours.parameters(), config)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.9, 0.9), eps=1e-9)
    for _ in range(5):
        for model, steps in ((ours, optimizer), (theirs, adam)):
            steps.zero_grad()
            Objective(model, 0.1)(*batch()).minimised.backward()
            steps.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_weight_decay_is_decoupled() -> None:
    """Adam's first step moves by the rate against the gradient's sign; decay comes first."""
    parameter = nn.Parameter(torch.tensor([4.0, -2.0, 1.0], dtype=torch.float64))
    parameter.grad = torch.tensor([100.0, -1.0, 0.0], dtype=torch.float64)
    build_optimizer([parameter], OptimConfig(learning_rate=0.1, weight_decay=0.5)).step()
    expected = [4.0 * 0.95 - 0.1, -2.0 * 0.95 + 0.1, 0.95]
    assert parameter.tolist() == pytest.approx(expected, abs=1e-9)


# --- choices drawn: REINFORCE


def choices(rows: int = 2, steps: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rewards, log-probabilities, baseline and mask (B, T), the second row one step shorter."""
    generator = torch.Generator().manual_seed(6)
    rewards, logp, value = (
        -torch.rand(rows, steps, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    mask = torch.tensor([[True] * steps, [True] * (steps - 1) + [False]])
    return rewards * mask, logp.requires_grad_(), value.requires_grad_(), mask


def test_reinforce_is_its_formula():
    rewards, logp, value, mask = choices()
    expected = torch.zeros((), dtype=torch.float64)
    for b in range(2):
        for t in range(3):
            if mask[b, t]:
                to_come = sum(float(rewards[b, u]) for u in range(t, 3))
                expected = expected + (to_come - value[b, t]) ** 2 / 2
                expected = expected - (to_come - value[b, t].item()) * logp[b, t]
    found = reinforce(rewards, logp, value, mask)
    close(found, expected)
    for part, twin in zip(
        *(torch.autograd.grad(loss, (logp, value)) for loss in (found, expected)), strict=True
    ):
        close(part, twin)
        assert (part[~mask] == 0).all()


def test_reinforce_is_unbiased_whatever_later_steps_make_of_a_choice():
    """All 27 sequences of three choices among three, each weighed by its probability.

    The rewards depend on all choices so far, the baseline is arbitrary; the mean gradient is that of the
    expected total reward.
    """
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    table = torch.randn(3, 3, 3, 3, generator=generator, dtype=torch.float64)  # step, then the choices so far
    value = torch.randn(1, 3, generator=generator, dtype=torch.float64)
    logp = logits.log_softmax(dim=1)
    mean, expected = torch.zeros_like(logits), torch.zeros((), dtype=torch.float64)
    for drawn in itertools.product(range(3), repeat=3):
        seen = [(*drawn[: t + 1], *[0] * (2 - t)) for t in range(3)]
        rewards = torch.stack([table[t][seen[t]] for t in range(3)]).unsqueeze(0)
        chosen = logp[torch.arange(3), torch.tensor(drawn)].unsqueeze(0)
        probability = chosen.sum().exp()
        loss = reinforce(rewards, chosen, value, torch.ones(1, 3, dtype=torch.bool))
        mean += probability.detach() * torch.autograd.grad(loss, logits, retain_graph=True)[0]
        expected = expected + probability * rewards.sum()
    close(mean, -torch.autograd.grad(expected, logits)[0])


def test_the_objective_adds_what_choices_earned():
    """The reward of a step is the log-likelihood of its reference token; the smoothing is no part of it."""
    model, parts = TinyModel(), batch()
    plain = Objective(model, 0.1)(*parts)
    _, _, _, tgt_out, tgt_mask = parts
    logp = torch.full(tgt_mask.shape, -0.5, dtype=torch.float64, requires_grad=True)
    value = torch.full(tgt_mask.shape, -1.5, dtype=torch.float64, requires_grad=True)
    inner = model.features
    model.features = lambda *args: inner(*args)._replace(choice_logp=logp, value=value)  # type: ignore
    found = Objective(model, 0.1)(*parts)
    likelihood = model.output(inner(*parts[:3]).hidden).log_softmax(-1)
    rewards = likelihood.gather(2, tgt_out.unsqueeze(2)).squeeze(2).masked_fill(~tgt_mask, 0).detach()
    close(found.minimised - plain.minimised, reinforce(rewards, logp, value, tgt_mask))
    close(found.nll, plain.nll)
    found.minimised.backward()
    assert logp.grad is not None
    assert (logp.grad[tgt_mask] != 0).all()
