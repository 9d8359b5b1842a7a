"""REINFORCE: its formula, unbiasedness by enumeration, and its part of the loss."""

import itertools

import pytest
import torch
from torch import Tensor

import seq2seq
from compare.training.loss import TranslationLoss, reinforce
from tests.kits.loss import TinyModel, batch, close


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


def test_the_loss_adds_what_choices_earned():
    """The reward of a step is the log-likelihood of its reference token; the smoothing is no part of it."""
    model, parts = TinyModel(), batch()
    plain = TranslationLoss(model, 0.1)(*parts)
    _, _, _, tgt_out, tgt_mask = parts
    logp = torch.full(tgt_mask.shape, -0.5, dtype=torch.float64, requires_grad=True)
    value = torch.full(tgt_mask.shape, -1.5, dtype=torch.float64, requires_grad=True)
    inner = model.features
    model.features = lambda *args: inner(*args)._replace(choice_logp=logp, value=value)  # type: ignore
    found = TranslationLoss(model, 0.1)(*parts)
    likelihood = model.output(inner(*parts[:3]).hidden).log_softmax(-1)
    rewards = likelihood.gather(2, tgt_out.unsqueeze(2)).squeeze(2).masked_fill(~tgt_mask, 0).detach()
    close(found.minimised - plain.minimised, reinforce(rewards, logp, value, tgt_mask))
    close(found.nll, plain.nll)
    found.minimised.backward()
    assert logp.grad is not None
    assert (logp.grad[tgt_mask] != 0).all()


def test_the_loss_maximises_the_entropy_and_updates_the_moving_average():
    """Both leave padding out; the average moves by a tenth of the way to the mean reward to come."""
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    model = TinyModel()
    logp, entropy = (torch.rand(tgt_mask.shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    average = torch.tensor([-3.0])
    hidden = model.features(src, src_mask, tgt_in).hidden

    class Hard(TinyModel):
        def features(self, *_: Tensor) -> seq2seq.Features:
            return seq2seq.Features(
                hidden, logp, average.clone().expand(tgt_mask.shape), self.entropy, average
            )

    hard = Hard()
    hard.load_state_dict(model.state_dict())
    losses = []
    for hard.entropy in (None, entropy):
        average.fill_(-3.0)
        criterion = TranslationLoss(hard, 0.0)
        losses.append(criterion(src, src_mask, tgt_in, tgt_out, tgt_mask).minimised)
        assert float(average) == -3.0
        criterion.end_update()
    close(losses[0] - losses[1], entropy[tgt_mask].sum())
    likelihoods = (
        model.output(hidden.detach()).detach().log_softmax(2).gather(2, tgt_out.unsqueeze(2)).squeeze(2)
        * tgt_mask
    )
    to_come = [
        float(row[t:].sum())
        for row, mask in zip(likelihoods, tgt_mask, strict=True)
        for t in range(int(mask.sum()))
    ]
    assert float(average) == pytest.approx(0.9 * -3.0 + 0.1 * sum(to_come) / len(to_come), rel=1e-6)


def test_the_moving_average_does_not_depend_on_the_parts_of_a_batch():
    """It moves once per update, towards the mean over all tokens of all parts, and not without any."""
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    config = seq2seq.ReinforceConfig(baseline="moving-average")
    attention = seq2seq.AttentionConfig(normaliser="reinforce", reinforce=config)
    sizes = seq2seq.Seq2SeqConfig(attention=attention, hidden_size=8, embedding_size=8, dropout=0.0)
    found = {}
    for parts in (1, len(src)):
        torch.manual_seed(0)
        model = seq2seq.Seq2Seq(sizes, 20, 20).train()
        torch.nn.init.zeros_(model.output.weight)  # so that rewards do not depend on what is sampled
        criterion = TranslationLoss(model, 0.0)
        for part in zip(
            *(each.chunk(parts) for each in (src, src_mask, tgt_in, tgt_out, tgt_mask)), strict=True
        ):
            criterion(*part)
        criterion.end_update()
        found[parts] = float(model.decoder.attention.normaliser.average)
        criterion.end_update()
        assert float(model.decoder.attention.normaliser.average) == found[parts]
    assert found[1] == pytest.approx(found[len(src)], rel=1e-5)
    assert found[1] < -0.1
