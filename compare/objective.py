"""The training loss: label-smoothed cross-entropy that never holds all logits.

Shapes: B sentences, T target positions, N real target tokens, D hidden size, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder

CHUNK_ELEMENTS = 1 << 22
"""Logits held at once: 16 MB in fp32, which stays in a CPU's last-level cache."""


class Loss(NamedTuple):
    """Sums over the real target tokens of a batch."""

    smoothed: Tensor
    """What is minimised: cross-entropy against the smoothed target, summed, scalar."""
    nll: Tensor
    """Negative log-likelihood of the reference, summed, scalar; has no gradient."""
    tokens: int
    """Real target tokens, end of sentence included."""


class Objective(nn.Module):
    """(model, batch) to summed loss and token count; padding takes no part in either."""

    def __init__(self, model: EncoderDecoder[Any, Any], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, tgt_out: Tensor, tgt_mask: Tensor
    ) -> Loss:
        """Compute the loss of src (B, S), tgt_in, tgt_out (B, T) under masks (B, S) and (B, T)."""
        hidden = self.model.features(src, src_mask, tgt_in).hidden
        output = self.model.output
        real = tgt_mask.flatten().nonzero().squeeze(1)
        hidden = hidden.flatten(0, 1).index_select(0, real)  # (N, D): no logits for padding
        targets = tgt_out.flatten().index_select(0, real)
        bias = output.bias if output.bias is not None else output.weight.new_zeros(output.out_features)
        smoothed, nll = linear_cross_entropy(hidden, output.weight, bias, targets, self.label_smoothing)
        return Loss(smoothed, nll, int(real.numel()))


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
        The smoothed loss and, without gradient, the negative log-likelihood; both scalars, summed over N.
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
            sums = weight.new_zeros(2)
            rows = max(1, CHUNK_ELEMENTS // weight.size(0))
            for start in range(0, hidden.size(0), rows):
                part = slice(start, start + rows)
                logits, inputs = _logits(hidden[part], narrow, bias)
                sums += _losses(logits, targets[part], smoothing)
                if wants_grad:
                    delta = _softmax_minus_target(logits, targets[part], smoothing)
                    _accumulate(grads, part, delta, inputs, narrow)
        ctx.grads = grads
        smoothed, nll = sums[0].clone(), sums[1].clone()
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


def _losses(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Summed (smoothed loss, nll) of a chunk; turns ``logits`` into log-probabilities in place."""
    logits -= logits.logsumexp(dim=1, keepdim=True)
    nll = -logits.gather(1, targets.unsqueeze(1)).sum()
    if smoothing == 0:
        return torch.stack([nll, nll])
    return torch.stack([(1 - smoothing) * nll - smoothing * logits.mean(dim=1).sum(), nll])


def _softmax_minus_target(logp: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The gradient by the logits, in place of the log-probabilities."""
    delta = logp.exp_()
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
