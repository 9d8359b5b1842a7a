"""Training loss: cross-entropy, consistency regularisation by a second pass, REINFORCE for hard attention.

Shapes: B sentences, S source and T target positions, N real target tokens, E size of an embedding.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.config.sections import RegularizationConfig
from compare.protocol import Choices, EncoderDecoder

AVERAGE_STEP = 0.1
"""Share of the last batch in the moving average of the rewards: Xu et al. 2015, section 4.1."""


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch."""

    minimised: Tensor
    """The loss to minimise: smoothed cross-entropy, plus ``reinforce`` for hard attention; scalar."""
    nll: Tensor
    """Negative log-likelihood of the reference, scalar, without gradient."""
    tokens: int
    """Number of real target tokens, end of sentence included."""


class TranslationLoss(nn.Module):
    """Loss of a model on a batch, summed over the real target tokens; padding contributes nothing.

    Consistency regularisation adds, in training, a second pass over the batch and the divergence between the
    predictions p and q of both:

    - "r-drop": (CE(p) + CE(q)) / 2 + alpha (KL(p || q) + KL(q || p)) / 2, where p and q differ by their draws
      of dropout. It is half of equation 4 of Liang et al. 2021, https://arxiv.org/abs/2106.14448, so that
      loss and gradient keep their size: alpha is half of theirs.
    - "simcut": CE(p) + alpha KL(p || q), where q lacks the embeddings of some tokens: Gao et al. 2022,
      https://arxiv.org/abs/2206.00368.

    As in the code of both papers, gradients flow through p and q. CE is smoothed, KL compares the
    distributions as they are, in nats. The ``nll`` is that of p.
    """

    def __init__(
        self,
        model: EncoderDecoder[Any, Any],
        label_smoothing: float,
        settings: RegularizationConfig | None = None,
    ) -> None:
        """Wrap a model.

        Args:
            model: the model; with consistency regularisation one without REINFORCE.
            label_smoothing: probability spread over the vocabulary, in [0, 1).
            settings: method and weight of consistency regularisation; None: none.
        """
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing
        self.pair: PairWeights | None = None
        self.cut: float | None = None
        if settings is not None and settings.consistency_weight is not None:
            alpha, self.cut = settings.consistency_weight, settings.cut
            is_symmetric = settings.consistency == "r-drop"
            self.pair = (
                PairWeights(0.5, alpha / 2, alpha / 2) if is_symmetric else PairWeights(0.0, alpha, 0.0)
            )

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor,
        tgt_in: Tensor,
        tgt_out: Tensor,
        tgt_mask: Tensor,
        *,
        tgt_tokens: int | None = None,
        src_lengths: Tensor | None = None,
    ) -> LossSums:
        """Compute the loss of a batch, summed over its real target tokens.

        ``tgt_tokens`` and ``src_lengths`` repeat what the masks say. Without them the host reads it from the
        masks, for which it waits until a GPU has finished all earlier work.

        Args:
            src: source ids, (B, S).
            src_mask: True at real source tokens, (B, S).
            tgt_in: target ids, beginning with the begin-of-sentence id, (B, T).
            tgt_out: the ids to predict, (B, T).
            tgt_mask: True at real target tokens, (B, T).
            tgt_tokens: number N of real target tokens.
            src_lengths: number of real source tokens of each sentence, on the CPU, (B,).
        """
        features = self.model.features(src, src_mask, tgt_in, src_lengths)
        passes, pair = [features.hidden], self.pair if self.training else None
        if pair is not None:
            passes.append(self._second_pass(src, src_mask, tgt_in, src_lengths))
        flat = tgt_mask.flatten()
        real = (flat.nonzero() if tgt_tokens is None else flat.nonzero_static(size=tgt_tokens)).squeeze(1)
        minimised, nll = linear_cross_entropy(
            [hidden.flatten(0, 1).index_select(0, real) for hidden in passes],  # no logits for padding
            self.model.output.weight,
            self.model.output.bias,
            tgt_out.flatten().index_select(0, real),
            self.label_smoothing,
            pair,
        )
        if features.choices is not None:
            rewards = nll.new_zeros(tgt_mask.numel()).index_copy(0, real, -nll).view(tgt_mask.shape)
            minimised = minimised + reinforce(rewards, features.choices, tgt_mask)
        return LossSums(minimised, nll.sum(), int(real.numel()))

    def _second_pass(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, src_lengths: Tensor | None
    ) -> Tensor:
        """Run the model again, with other dropout and, if tokens are cut, without some of them."""
        if self.cut is None:
            return self.model.features(src, src_mask, tgt_in, src_lengths).hidden
        src = cut_tokens(src, may_cut_source(src_mask), self.cut)
        tgt_in = cut_tokens(tgt_in, may_cut_target(tgt_in), self.cut)
        with cut_embeddings(self.model):
            return self.model.features(src, src_mask, tgt_in, src_lengths).hidden


def perplexity(loss: float) -> float:
    """Compute exp(loss) of a loss per token; infinity where it exceeds the range of a float."""
    return math.exp(loss) if loss < 700 else math.inf


# REINFORCE, which trains hard attention.


def reinforce(rewards: Tensor, choices: Choices, mask: Tensor) -> Tensor:
    """Compute the REINFORCE loss of sampled source positions: sum_t (R_t - v_t)^2 / 2 - [R_t - v_t] log p_t.

    R_t is the sum of the rewards from position t on, v_t the baseline and p_t the probability of the choice;
    no gradient flows through the brackets. The gradient of the second term estimates that of the negative
    expected log-likelihood (Williams 1992; for attention Xu et al. 2015, section 4.1); the first term fits
    the baseline. The entropy of the choices is subtracted, and a baseline that is a moving average moves
    towards the mean of R_t.

    Args:
        rewards: log-likelihood of each reference token, 0 at padding, (B, T).
        choices: the sampled positions.
        mask: True at real tokens, (B, T).

    Returns:
        The loss, summed over real tokens, scalar.
    """
    returns = _sum_from_each_position(rewards).detach()
    advantage = returns - choices.value.to(returns.dtype)
    losses = advantage.square() / 2 - advantage.detach() * choices.logp.to(returns.dtype)
    if choices.entropy is not None:
        losses = losses - choices.entropy.to(returns.dtype)
    if choices.average is not None:
        mean = returns.where(mask, 0.0).sum() / mask.sum()
        choices.average.lerp_(mean.to(choices.average.dtype), AVERAGE_STEP)
    return losses.where(mask, 0.0).sum()


def _sum_from_each_position(rewards: Tensor) -> Tensor:
    """Compute R_t = r_t + ... + r_T of rewards (B, T)."""
    if rewards.is_cuda and torch.are_deterministic_algorithms_enabled():  # which torch's cumsum is not
        with torch.autocast("cuda", enabled=False):
            return rewards @ rewards.new_ones(rewards.size(1), rewards.size(1)).tril()
    return rewards.flip(1).cumsum(1).flip(1)


# Token cutoff: a pass in which some tokens have an embedding of zeros, for any model that embeds ids.
#
# Shen et al. 2020, https://arxiv.org/abs/2009.13818; SimCut (Gao et al. 2022) cuts tokens on both sides. As
# in the code of SimCut, the end of the source and the begin of the target are never cut, positions are added
# as ever, and what remains is not scaled up. A cut token is marked in the ids themselves, which models
# reverse, pack and concatenate as they like: id k becomes -1 - k.


def may_cut_source(src_mask: Tensor) -> Tensor:
    """Return True at all real source tokens of (B, S) but the last of each sentence."""
    return torch.cat((src_mask[:, 1:], torch.zeros_like(src_mask[:, :1])), dim=1)


def may_cut_target(tgt_in: Tensor) -> Tensor:
    """Return True at all positions of (B, T) but the first."""
    return (torch.arange(tgt_in.size(1), device=tgt_in.device) > 0).expand_as(tgt_in)


def cut_tokens(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Mark each token of ``ids`` (B, T) as cut with this probability where ``allowed`` (B, T) is True.

    Returns:
        The ids, (B, T), for a model inside ``cut_embeddings``.
    """
    is_cut = (torch.rand(ids.shape, device=ids.device) < probability) & allowed
    return torch.where(is_cut, ~ids, ids)  # ~k is -1 - k


@contextmanager
def cut_embeddings(model: Any) -> Iterator[None]:
    """Let every ``nn.Embedding`` of a model give zeros for the tokens that ``cut_tokens`` has marked."""
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


# Cross-entropy of the output layer, of one pass of a model or of two that are compared. Loss and gradients
# are computed in one pass over chunks of N, so that no (N, V) tensor is ever stored.
#
# Shapes: N real target tokens, D hidden size, V vocabulary.


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
    if not torch.is_grad_enabled():  # ``ctx.needs_input_grad`` ignores no_grad
        weight, *passes = (tensor.detach() for tensor in (weight, *passes))
        bias = None if bias is None else bias.detach()
    loss, nll = _LinearCrossEntropy.apply(weight, bias, targets, smoothing, pair, *passes)  # type: ignore[no-untyped-call]
    return loss, nll


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor | None,
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
            gradients = _Gradients.of(weight, bias, passes) if needs_grad else None
            total, nll = weight.new_zeros(()), weight.new_empty(len(targets))
            chunk_size = max(1, chunk_rows(weight) // len(passes))
            for start in range(0, len(targets), chunk_size):
                chunk = slice(start, start + chunk_size)
                inputs = [hidden[chunk].to(dtype) for hidden in passes]
                logits = [(part @ cast_weight.t()).to(weight.dtype) for part in inputs]
                if bias is not None:
                    logits = [part.add_(bias) for part in logits]
                if pair is None:
                    nll[chunk], loss = _losses(logits[0], targets[chunk], smoothing)
                    logits_grads = (
                        [_subtract_targets(logits[0], targets[chunk], smoothing)] if needs_grad else []
                    )
                else:
                    nll[chunk], loss, *logits_grads = _compare(logits, targets[chunk], smoothing, pair)
                total += loss
                if gradients is not None:
                    gradients.add(chunk, logits_grads, inputs, cast_weight)
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
        weight, bias, passes = ctx.gradients
        bias = None if bias is None else bias * grad
        return weight * grad, bias, None, None, None, *(each * grad for each in passes)


class _Gradients(NamedTuple):
    """Gradients of the loss with respect to weight, bias and the passes."""

    weight: Tensor
    bias: Tensor | None
    passes: list[Tensor]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, passes: Sequence[Tensor]) -> "_Gradients":
        """Return zeros."""
        zero = torch.zeros_like
        return cls(zero(weight), None if bias is None else zero(bias), [zero(each) for each in passes])

    def add(
        self, chunk: slice, logits_grads: Sequence[Tensor], inputs: Sequence[Tensor], weight: Tensor
    ) -> None:
        """Add the contribution of a chunk of rows."""
        for hidden_grad, logits_grad, hidden in zip(self.passes, logits_grads, inputs, strict=True):
            if self.bias is not None:
                self.bias.add_(logits_grad.sum(dim=0))
            logits_grad = logits_grad.to(weight.dtype)
            hidden_grad[chunk] = logits_grad @ weight
            self.weight.add_(logits_grad.t() @ hidden)


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
