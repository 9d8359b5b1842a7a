"""Consistency regularisation: a second pass over each batch, and a loss on what both passes predict.

Shapes: as in ``compare.training.loss``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.config.sections import RegularizationConfig
from compare.protocol import EncoderDecoder, Features
from compare.training.loss import (
    ModelInputs,
    TranslationLoss,
    add_output_gradients,
    chunk_rows,
    compute_logits,
    compute_losses,
    subtract_targets,
)

# Token cutoff: a pass in which some tokens have an embedding of zeros, for any model that embeds ids.
#
# Shen et al. 2020, https://arxiv.org/abs/2009.13818; SimCut (Gao et al. 2022) cuts tokens on both sides. As
# in the code of SimCut, the end of the source and the begin of the target are never cut, positions are added
# as ever, and what remains is not scaled up. A cut token is marked in the ids themselves, which models
# reverse, pack and concatenate as they like: id k becomes -1 - k.
#
# Shapes: B sentences, S source and T target positions, E size of an embedding.


def may_cut_source(src_mask: Tensor) -> Tensor:
    """Return True at all real source tokens of (B, S) but the last of each sentence."""
    return torch.cat((src_mask[:, 1:], torch.zeros_like(src_mask[:, :1])), dim=1)


def may_cut_target(tgt_in: Tensor) -> Tensor:
    """Return True at all positions of (B, T) but the first."""
    return (torch.arange(tgt_in.size(1), device=tgt_in.device) > 0).expand_as(tgt_in)


def cut_tokens(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Mark each allowed token as cut with this probability.

    Args:
        ids: token ids, (B, T).
        allowed: True where a token may be cut, (B, T).
        probability: drawn for each token by torch's generator of the device, as dropout is.

    Returns:
        The ids, (B, T), for a model inside ``cut_embeddings``.
    """
    is_cut = (torch.rand(ids.shape, device=ids.device) < probability) & allowed
    return torch.where(is_cut, ~ids, ids)  # ~k is -1 - k


@contextmanager
def cut_embeddings(model: Any) -> Iterator[None]:
    """Let all embeddings of a model give zeros for the tokens that ``cut_tokens`` has marked.

    Args:
        model: a torch module that looks its ids up by ``nn.Embedding``.
    """
    embeddings = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    for embedding in embeddings:
        embedding.forward = partial(_look_up, embedding)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for embedding in embeddings:
            del embedding.forward


def _look_up(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """Look up ids (...), of which cut ones give zeros: (..., E)."""
    is_cut = ids < 0
    embedded = type(embedding).forward(embedding, torch.where(is_cut, ~ids, ids))
    return embedded.masked_fill(is_cut.unsqueeze(-1), 0.0)


class PairWeights(NamedTuple):
    """Weights of the parts of the loss of two passes, which predict p and q."""

    ce_q: float
    """Weight of the cross-entropy of q; that of p has 1 minus this."""
    kl_pq: float
    """Weight of KL(p || q)."""
    kl_qp: float
    """Weight of KL(q || p)."""


class ConsistencyLoss(TranslationLoss):
    """Cross-entropy and, in training, the divergence between the predictions p and q of two passes.

    - "r-drop": (CE(p) + CE(q)) / 2 + alpha (KL(p || q) + KL(q || p)) / 2, where p and q differ by their draws
      of dropout. It is half of equation 4 of Liang et al. 2021, https://arxiv.org/abs/2106.14448, so that
      loss and gradient keep their size: alpha is half of theirs.
    - "simcut": CE(p) + alpha KL(p || q), where q lacks the embeddings of some tokens (``token_cut``): Gao et
      al. 2022, https://arxiv.org/abs/2206.00368.

    As in the code of both papers, gradients flow through p and q. CE is smoothed, KL compares the
    distributions as they are; both are sums over the real target tokens, in nats. The ``nll`` is that of p.
    Outside training there is one pass, and the loss is the ``TranslationLoss``.
    """

    def __init__(
        self, model: EncoderDecoder[Any, Any], label_smoothing: float, settings: RegularizationConfig
    ) -> None:
        """Wrap a model.

        Args:
            model: trained without REINFORCE.
            label_smoothing: probability spread over the vocabulary, in [0, 1).
            settings: method and weights; ``consistency`` is not "none".
        """
        super().__init__(model, label_smoothing)
        alpha, self.cut = settings.consistency_weight or 0.0, settings.cut
        is_symmetric = settings.consistency == "r-drop"
        self.weights = (
            PairWeights(0.5, alpha / 2, alpha / 2) if is_symmetric else PairWeights(0.0, alpha, 0.0)
        )

    def cross_entropy(
        self, features: Features, real: Tensor, targets: Tensor, inputs: ModelInputs
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of the predictions p, ``features``, and of those of a second pass.

        Arguments and result are those of ``TranslationLoss.cross_entropy``.

        Raises:
            ValueError: the model is trained by REINFORCE, whose sampled choices no gradient of KL reaches.
        """
        if not self.training:
            return super().cross_entropy(features, real, targets, inputs)
        if features.choice_logp is not None:
            raise ValueError(
                "regularization.consistency cannot train by REINFORCE: no gradient reaches samples"
            )
        passes = (features, self._second_features(*inputs))
        p_hidden, q_hidden = (each.hidden.flatten(0, 1).index_select(0, real) for each in passes)
        weight, bias = self.output_layer()
        return consistent_cross_entropy(
            p_hidden, q_hidden, weight, bias, targets, self.label_smoothing, self.weights
        )

    def _second_features(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, src_lengths: Tensor | None
    ) -> Features:
        """Run the model again, with other dropout and, if tokens are cut, without some of them."""
        if self.cut is None:
            return self.compute_features(src, src_mask, tgt_in, src_lengths)
        src = cut_tokens(src, may_cut_source(src_mask), self.cut)
        tgt_in = cut_tokens(tgt_in, may_cut_target(tgt_in), self.cut)
        with cut_embeddings(self.model):
            return self.compute_features(src, src_mask, tgt_in, src_lengths)


def training_loss(
    model: EncoderDecoder[Any, Any], label_smoothing: float, settings: RegularizationConfig
) -> TranslationLoss:
    """Build the loss that an experiment trains a model with; arguments as for ``ConsistencyLoss``."""
    if settings.consistency == "none":
        return TranslationLoss(model, label_smoothing)
    return ConsistencyLoss(model, label_smoothing, settings)


def consistent_cross_entropy(
    first: Tensor,
    second: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    smoothing: float,
    weights: PairWeights,
) -> tuple[Tensor, Tensor]:
    """Compute cross-entropies and divergences of p = softmax(first @ weight.T + bias) and q, of second.

    Args:
        first: inputs of the output layer in the first pass, (N, D).
        second: inputs of the output layer in the second pass, (N, D).
        weight: matrix of the output layer, (V, D).
        bias: its bias, (V,).
        targets: reference ids, (N,).
        smoothing: probability spread over the vocabulary, in [0, 1).
        weights: of the parts of the loss.

    Returns:
        The loss, summed over N, and, without gradient, the negative log-likelihoods by p, (N,).
    """
    if not torch.is_grad_enabled():  # ``ctx.needs_input_grad`` ignores no_grad
        first, second, weight, bias = (part.detach() for part in (first, second, weight, bias))
    total, nll = _ConsistentCrossEntropy.apply(  # type: ignore[no-untyped-call]
        first, second, weight, bias, targets, smoothing, weights
    )
    return total, nll


class _ConsistentCrossEntropy(torch.autograd.Function):
    """Loss and gradients in one pass over chunks of N, so that no (N, V) tensor is ever stored."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        weights: PairWeights,
    ) -> tuple[Tensor, Tensor]:
        device = first.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        needs_grad = any(ctx.needs_input_grad)
        with torch.autocast(device, enabled=False):
            cast_weight = weight.to(dtype)
            grads = [torch.zeros_like(part) for part in (first, second, weight, bias) if needs_grad]
            total, nll = weight.new_zeros(()), weight.new_empty(first.size(0))
            chunk_size = max(1, chunk_rows(weight) // 2)  # of two passes
            for start in range(0, first.size(0), chunk_size):
                chunk = slice(start, start + chunk_size)
                p, p_inputs = compute_logits(first[chunk], cast_weight, bias)
                q, q_inputs = compute_logits(second[chunk], cast_weight, bias)
                compared = _compare(p, q, targets[chunk], smoothing, weights)
                nll[chunk] = compared.nll
                total += compared.loss
                if needs_grad:
                    p_grad, q_grad = _logits_gradients(p, q, compared, targets[chunk], smoothing, weights)
                    of_first, of_second, *of_layer = grads
                    add_output_gradients([of_first, *of_layer], chunk, p_grad, p_inputs, cast_weight)
                    add_output_gradients([of_second, *of_layer], chunk, q_grad, q_inputs, cast_weight)
        ctx.grads = grads
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the training loss has no second derivatives: leave create_graph=True out")
        first, second, weight, bias = (stored * grad for stored in ctx.grads)
        return first, second, weight, bias, None, None, None


class _Comparison(NamedTuple):
    """Loss of a chunk of N positions, and what its gradient needs."""

    loss: Tensor
    """Weighted sum of cross-entropies and divergences, scalar."""
    nll: Tensor
    """Negative log-likelihoods of the references by p, (N,)."""
    log_ratio: Tensor
    """log p - log q, (N, V)."""
    kl_pq: Tensor
    """KL(p || q), (N, 1)."""
    kl_qp: Tensor
    """KL(q || p), (N, 1)."""


def _compare(p: Tensor, q: Tensor, targets: Tensor, smoothing: float, weights: PairWeights) -> _Comparison:
    """Compute the loss of logits p and q, (N, V), which become probabilities in place."""
    log_ratio = p - q
    reference = log_ratio.gather(1, targets.unsqueeze(1)).squeeze(1)
    nll, loss_p = compute_losses(p, targets, smoothing)
    nll_q, loss_q = compute_losses(q, targets, smoothing)
    log_ratio -= (reference + nll - nll_q).unsqueeze(1)  # as log Z = reference logit + nll
    kl_pq = (p * log_ratio).sum(dim=1, keepdim=True)
    kl_qp = -(q * log_ratio).sum(dim=1, keepdim=True)
    loss = (1 - weights.ce_q) * loss_p + weights.ce_q * loss_q
    loss = loss + (weights.kl_pq * kl_pq + weights.kl_qp * kl_qp).sum()
    return _Comparison(loss, nll, log_ratio, kl_pq, kl_qp)


def _logits_gradients(
    p: Tensor, q: Tensor, compared: _Comparison, targets: Tensor, smoothing: float, weights: PairWeights
) -> tuple[Tensor, Tensor]:
    """Compute the gradients with respect to the logits of probabilities p and q, (N, V) each.

    KL(p || q) has the gradients p (log p - log q - KL) for the logits of p and q - p for those of q.
    """
    ce_q, kl_pq, kl_qp = weights
    p_grad = compared.log_ratio * kl_pq
    p_grad += 1 - ce_q + kl_qp - kl_pq * compared.kl_pq
    p_grad.mul_(p).sub_(q, alpha=kl_qp)
    q_grad = compared.log_ratio.mul_(-kl_qp)
    q_grad += ce_q + kl_pq - kl_qp * compared.kl_qp
    q_grad.mul_(q).sub_(p, alpha=kl_pq)
    return (
        subtract_targets(p_grad, targets, smoothing, 1 - ce_q),
        subtract_targets(q_grad, targets, smoothing, ce_q),
    )
