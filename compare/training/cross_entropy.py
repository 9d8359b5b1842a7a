"""Cross-entropy of the output layer, of one pass of a model or of two that are compared, in chunks of logits.

Loss and gradients are computed in one pass over chunks of N, so that no (N, V) tensor is ever stored.

Shapes: N real target tokens, D hidden size, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22
"""Maximum number of logits in memory at once: 16 MB in fp32, which fits the last-level cache of a CPU."""
GPU_CHUNK_ELEMENTS = 1 << 27
"""The same on a GPU: 512 MB in fp32."""
GPU_CHUNK_ROWS = 4096
"""Maximum number of rows of logits there: enough to keep a GPU busy, and few chunks per update."""


class PairWeights(NamedTuple):
    """Weights of the parts of the loss of two passes, which predict p and q."""

    ce_q: float
    """Weight of the cross-entropy of q; that of p has 1 minus this."""
    kl_pq: float
    """Weight of KL(p || q)."""
    kl_qp: float
    """Weight of KL(q || p)."""


def linear_cross_entropy(
    passes: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    pair: PairWeights | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of ``hidden @ weight.T + bias`` against smoothed targets, summed.

    The target distribution has (1 - smoothing) on the reference plus smoothing / V on every entry (Szegedy et
    al. 2016, section 7; as in ``torch.nn.functional.cross_entropy``). Of two passes, which predict p and q,
    the loss is the weighted sum of both cross-entropies and both divergences.

    Args:
        passes: inputs of the output layer in one or two passes, (N, D) each.
        weight: matrix of the output layer, (V, D).
        bias: its bias, (V,); None: it has none.
        targets: reference ids, (N,).
        smoothing: probability spread over the vocabulary, in [0, 1).
        pair: weights of the parts of the loss of two passes.

    Returns:
        The loss, summed over N, and, without gradient, the negative log-likelihoods by the first pass, (N,).
    """
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    if not torch.is_grad_enabled():  # ``ctx.needs_input_grad`` ignores no_grad
        weight, bias, *passes = (tensor.detach() for tensor in (weight, bias, *passes))
    loss, nll = _LinearCrossEntropy.apply(weight, bias, targets, smoothing, pair, *passes)  # type: ignore[no-untyped-call]
    return loss, nll


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        pair: PairWeights | None,
        *passes: Tensor,
    ) -> tuple[Tensor, Tensor]:
        device = weight.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        needs_grad = any(ctx.needs_input_grad)
        with torch.autocast(device, enabled=False):
            cast_weight = weight.to(dtype)
            gradients = [torch.zeros_like(each) for each in (weight, bias, *passes) if needs_grad]
            total, nll = weight.new_zeros(()), weight.new_empty(len(targets))
            chunk_size = max(1, chunk_rows(weight) // len(passes))
            for start in range(0, len(targets), chunk_size):
                chunk = slice(start, start + chunk_size)
                inputs = [hidden[chunk].to(dtype) for hidden in passes]
                logits = [(part @ cast_weight.t()).to(bias.dtype).add_(bias) for part in inputs]
                if pair is None:
                    nll[chunk], loss = _losses(logits[0], targets[chunk], smoothing)
                    logits_grads = (
                        [_subtract_targets(logits[0], targets[chunk], smoothing)] if needs_grad else []
                    )
                else:
                    nll[chunk], loss, *logits_grads = _compare(logits, targets[chunk], smoothing, pair)
                total += loss
                if needs_grad:
                    _add_gradients(gradients, chunk, logits_grads, inputs, cast_weight)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the training loss has no second derivatives, so create_graph=True would give wrong ones: "
                "use torch.nn.functional.cross_entropy on the logits of model(src, src_mask, tgt_in)"
            )
        weight, bias, *passes = (stored * grad for stored in ctx.gradients)
        return weight, bias, None, None, None, *passes


def chunk_rows(weight: Tensor) -> int:
    """Choose the number of rows of logits in memory at once, for the output matrix ``weight`` (V, D)."""
    if weight.device.type == "cpu":
        return max(1, CHUNK_ELEMENTS // weight.size(0))
    return max(1, min(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // weight.size(0)))


def _losses(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Compute the nll (N,) and the summed smoothed loss of a chunk; ``logits`` become probabilities in place.

    Only softmax takes exponentials. log Z follows from the largest logit: log Z = max logit - log max p.
    """
    largest, reference = logits.amax(dim=1), logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    mean = logits.mean(dim=1) if smoothing else None
    probabilities = torch.softmax(logits, 1, out=logits)
    log_z = largest - probabilities.amax(dim=1).log()
    nll = log_z - reference
    loss = nll.sum()
    return nll, loss if mean is None else (1 - smoothing) * loss + smoothing * (log_z - mean).sum()


def _compare(
    logits: Sequence[Tensor], targets: Tensor, smoothing: float, pair: PairWeights
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the nll by p, the loss, and its gradients with respect to the logits of p and q, (N, V) each.

    KL(p || q) has the gradients p (log p - log q - KL) for the logits of p and q - p for those of q.
    """
    p, q = logits
    ce_q, weight_pq, weight_qp = pair
    log_ratio = p - q
    reference = log_ratio.gather(1, targets.unsqueeze(1)).squeeze(1)
    nll, loss_p = _losses(p, targets, smoothing)  # p and q are probabilities from here on
    nll_q, loss_q = _losses(q, targets, smoothing)
    log_ratio -= (reference + nll - nll_q).unsqueeze(1)  # as log Z = reference logit + nll
    kl_pq = (p * log_ratio).sum(dim=1, keepdim=True)
    kl_qp = -(q * log_ratio).sum(dim=1, keepdim=True)
    loss = (1 - ce_q) * loss_p + ce_q * loss_q
    loss = loss + (weight_pq * kl_pq + weight_qp * kl_qp).sum()
    p_grad = log_ratio * weight_pq
    p_grad += 1 - ce_q + weight_qp - weight_pq * kl_pq
    p_grad.mul_(p).sub_(q, alpha=weight_qp)
    q_grad = log_ratio.mul_(-weight_qp)
    q_grad += ce_q + weight_pq - weight_qp * kl_qp
    q_grad.mul_(q).sub_(p, alpha=weight_pq)
    _subtract_targets(p_grad, targets, smoothing, 1 - ce_q)
    _subtract_targets(q_grad, targets, smoothing, ce_q)
    return nll, loss, p_grad, q_grad


def _subtract_targets(gradient: Tensor, targets: Tensor, smoothing: float, share: float = 1.0) -> Tensor:
    """Subtract ``share`` times the smoothed targets from a tensor (N, V), in place.

    From probabilities it makes the gradient of the loss with respect to the logits.
    """
    if smoothing:
        gradient -= share * smoothing / gradient.size(1)
    reference = gradient.new_full((len(targets), 1), share * (smoothing - 1))
    return gradient.scatter_add_(1, targets.unsqueeze(1), reference)


def _add_gradients(
    gradients: Sequence[Tensor],
    chunk: slice,
    logits_grads: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weight: Tensor,
) -> None:
    """Add the contribution of a chunk to the gradients of weight, bias and the passes."""
    weight_grad, bias_grad, *hidden_grads = gradients
    for hidden_grad, logits_grad, hidden in zip(hidden_grads, logits_grads, inputs, strict=True):
        bias_grad += logits_grad.sum(dim=0)
        logits_grad = logits_grad.to(weight.dtype)
        hidden_grad[chunk] = logits_grad @ weight
        weight_grad += logits_grad.t() @ hidden
