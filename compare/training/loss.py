"""The training loss: label-smoothed cross-entropy that never holds all logits; REINFORCE for hard attention.

Shapes: B sentences, T target positions, N real target tokens, D hidden size, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder

CHUNK_ELEMENTS = 1 << 22
"""Logits held at once: 16 MB in fp32, which stays in a CPU's last-level cache."""


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch."""

    minimised: Tensor
    """Cross-entropy against the smoothed target, and ``reinforce`` of choices drawn; summed, scalar."""
    nll: Tensor
    """Negative log-likelihood of the reference, summed, scalar; has no gradient."""
    tokens: int
    """Real target tokens, end of sentence included."""


class TranslationLoss(nn.Module):
    """(model, batch) to summed loss and token count; padding takes no part in either."""

    def __init__(self, model: EncoderDecoder[Any, Any], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, tgt_out: Tensor, tgt_mask: Tensor
    ) -> LossSums:
        """Compute the loss of src (B, S), tgt_in, tgt_out (B, T) under masks (B, S) and (B, T)."""
        features = self.model.features(src, src_mask, tgt_in)
        output = self.model.output
        real = tgt_mask.flatten().nonzero().squeeze(1)
        hidden = features.hidden.flatten(0, 1).index_select(0, real)  # (N, D): no logits for padding
        targets = tgt_out.flatten().index_select(0, real)
        bias = output.bias if output.bias is not None else output.weight.new_zeros(output.out_features)
        minimised, nll = linear_cross_entropy(hidden, output.weight, bias, targets, self.label_smoothing)
        if features.choice_logp is not None and features.value is not None:
            rewards = nll.new_zeros(tgt_mask.numel()).index_copy(0, real, -nll).view(tgt_mask.shape)
            minimised = minimised + reinforce(rewards, features.choice_logp, features.value, tgt_mask)
        return LossSums(minimised, nll.sum(), int(real.numel()))


def reinforce(rewards: Tensor, choice_logp: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Loss of the choices drawn (Williams 1992; for attention Xu et al. 2015, section 4.1), summed, scalar.

    A choice is credited with all rewards from its own position on, less what the baseline expected; that is
    the gradient of the expected log-likelihood, whatever later positions make of the choice. The baseline
    learns those returns by half their squared error.

    Args:
        rewards: log-likelihood of each reference token, 0 at padding, (B, T).
        choice_logp: log-probability of the choice made before it, (B, T).
        value: the baseline, (B, T).
        mask: True at real tokens, (B, T).
    """
    returns = rewards.flip(1).cumsum(1).flip(1).detach()
    advantage = returns - value.to(returns.dtype)
    losses = advantage.square() / 2 - advantage.detach() * choice_logp.to(returns.dtype)
    return losses.where(mask, 0.0).sum()


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum cross-entropy of ``hidden @ weight.T + bias`` against smoothed targets.

    The target distribution is (1 - smoothing) on the reference and smoothing / V on every entry
    (Szegedy et al. 2016, as in ``torch.nn.functional.cross_entropy``).

    Args:
        hidden: inputs of the output layer, (N, D).
        weight: (V, D).
        bias: (V,).
        targets: reference ids, (N,).
        smoothing: in [0, 1).

    Returns:
        The smoothed loss, summed over N, and, without gradient, the negative log-likelihoods (N,).
    """
    if not torch.is_grad_enabled():  # forward is told what requires gradients, not whether they are wanted
        hidden, weight, bias = hidden.detach(), weight.detach(), bias.detach()
    smoothed, nll = _LinearCrossEntropy.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return smoothed, nll


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients in one pass over chunks of N, so that (N, V) never exists."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        wants_grad = any(ctx.needs_input_grad)
        with torch.autocast(device, enabled=False):
            narrow = weight.to(low)
            grads = [torch.zeros_like(tensor) for tensor in (hidden, weight, bias) if wants_grad]
            smoothed, nll = weight.new_zeros(()), weight.new_empty(hidden.size(0))
            rows = max(1, CHUNK_ELEMENTS // weight.size(0))
            for start in range(0, hidden.size(0), rows):
                part = slice(start, start + rows)
                logits, inputs = _logits(hidden[part], narrow, bias)
                nll[part], loss = _losses(logits, targets[part], smoothing)
                smoothed += loss
                if wants_grad:
                    delta = _minus_target(logits, targets[part], smoothing)
                    _accumulate(grads, part, delta, inputs, narrow)
        ctx.grads = grads
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = (part * grad for part in ctx.grads)
        return hidden, weight, bias, None, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Logits in the dtype of ``bias`` and the inputs in the dtype of ``weight``."""
    inputs = hidden.to(weight.dtype)
    return (inputs @ weight.t()).to(bias.dtype).add_(bias), inputs


def _losses(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The nll (N,) of a chunk and its summed smoothed loss; turns ``logits`` into probabilities in place.

    With one exponential an entry: that of the largest logit tells the normaliser, log p = logit - log Z.
    """
    largest, reference = logits.amax(dim=1), logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    mean = logits.mean(dim=1) if smoothing else None
    probability = torch.softmax(logits, 1, out=logits)
    log_z = largest - probability.amax(dim=1).log()
    nll = log_z - reference
    loss = nll.sum()
    return nll, loss if mean is None else (1 - smoothing) * loss + smoothing * (log_z - mean).sum()


def _minus_target(delta: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The gradient by the logits, in place of the probabilities."""
    if smoothing:
        delta -= smoothing / delta.size(1)
    return delta.scatter_add_(1, targets.unsqueeze(1), delta.new_full((len(targets), 1), smoothing - 1))


def _accumulate(grads: list[Tensor], part: slice, delta: Tensor, inputs: Tensor, weight: Tensor) -> None:
    """Add a chunk's share to the gradients of (hidden, weight, bias)."""
    by_hidden, by_weight, by_bias = grads
    by_bias += delta.sum(dim=0)
    delta = delta.to(weight.dtype)
    by_hidden[part] = delta @ weight
    by_weight += delta.t() @ inputs
