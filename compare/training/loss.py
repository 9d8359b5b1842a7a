"""Training loss: cross-entropy; consistency regularisation and REINFORCE for hard attention add to it.

Shapes: B sentences, S source and T target positions, N real target tokens, D hidden size, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, linear

from compare.config.sections import RegularizationConfig
from compare.protocol import Choices, EncoderDecoder
from seq2seq.normalisers import cumulative_sum


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch."""

    minimised: Tensor
    """The loss to minimise: smoothed cross-entropy, plus ``reinforce`` for hard attention; scalar."""
    nll: Tensor
    """Negative log-likelihood of the reference, scalar, without gradient."""
    tokens: int


def linear_cross_entropy(
    passes: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    pair: "PairWeights | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of ``hidden @ weight.T + bias`` against smoothed targets, summed.

    The target distribution has (1 - smoothing) on the reference plus smoothing / V on every entry (Szegedy et
    al. 2016, section 7).

    Args:
        passes: hidden states, the inputs of the output layer, in one or two passes, (N, D) each.
        weight: matrix of the output layer, (V, D).
        bias: its bias, (V,); None: it has none.
        targets: reference ids, (N,).
        smoothing: probability spread over the vocabulary, in [0, 1).
        pair: weights of the parts of the loss of two passes.

    Returns:
        The loss, summed over N, and, without gradient, the negative log-likelihoods by the first pass, (N,).
    """
    logits = [linear(hidden, weight, bias).to(weight.dtype) for hidden in passes]
    losses = [cross_entropy(part, targets, reduction="sum", label_smoothing=smoothing) for part in logits]
    nll = cross_entropy(logits[0].detach(), targets, reduction="none")
    return (losses[0] if pair is None else pair.add(losses, logits)), nll


class TranslationLoss(nn.Module):
    """Loss of a model on a batch, summed over the real target tokens; padding contributes nothing."""

    def __init__(
        self,
        model: EncoderDecoder[Any, Any],
        label_smoothing: float,
        settings: RegularizationConfig | None = None,
    ) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing
        self.consistency = None if settings is None else Consistency.of(settings)

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

        Args:
            src: source ids, (B, S).
            src_mask: True at real source tokens, (B, S).
            tgt_in: target ids, beginning with the begin-of-sentence id, (B, T).
            tgt_out: the ids to predict, (B, T).
            tgt_mask: True at real target tokens, (B, T).
            tgt_tokens: number N of real target tokens; None reads it from the mask, which waits for a GPU.
            src_lengths: number of real source tokens of each sentence, on the CPU, (B,); None as above.
        """
        features = self.model.features(src, src_mask, tgt_in, src_lengths)
        passes, pair, output, flat = [features.hidden], None, self.model.output, tgt_mask.flatten()
        if self.consistency is not None and self.training:
            passes.append(self.consistency.second_pass(self.model, src, src_mask, tgt_in, src_lengths))
            pair = self.consistency.weights
        real = (flat.nonzero() if tgt_tokens is None else flat.nonzero_static(size=tgt_tokens)).squeeze(1)
        hidden = [states.flatten(0, 1).index_select(0, real) for states in passes]  # no logits for padding
        targets = tgt_out.flatten().index_select(0, real)
        loss, nll = linear_cross_entropy(
            hidden, output.weight, output.bias, targets, self.label_smoothing, pair
        )
        if features.choices is not None:
            rewards = nll.new_zeros(tgt_mask.numel()).index_copy(0, real, -nll).view(tgt_mask.shape)
            loss = loss + reinforce(rewards, features.choices, tgt_mask)
        return LossSums(loss, nll.sum(), int(real.numel()))


def perplexity(loss: float) -> float:
    """Compute exp(loss) of a loss per token; infinity where it exceeds the range of a float."""
    return math.exp(loss) if loss < 700 else math.inf


# Consistency regularisation: a second pass, and the divergence between the predictions p and q of both.


class PairWeights(NamedTuple):
    """Weights of the parts of the loss of two passes, which predict p and q."""

    ce_q: float
    """Weight of the cross-entropy of q; that of p has 1 minus this."""
    kl_pq: float
    kl_qp: float

    def add(self, losses: Sequence[Tensor], logits: Sequence[Tensor]) -> Tensor:
        """Return the weighted sum of both cross-entropies and, from logits (N, V) each, both divergences."""
        p, q = (part.log_softmax(-1) for part in logits)
        kl_pq, kl_qp = (kl_div(x, y, reduction="sum", log_target=True) for x, y in ((q, p), (p, q)))
        ce = (1 - self.ce_q) * losses[0] + self.ce_q * losses[1]
        return ce + self.kl_pq * kl_pq + self.kl_qp * kl_qp


class Consistency(NamedTuple):
    """Consistency regularisation in training, by one of two methods.

    - "r-drop": (CE(p) + CE(q)) / 2 + alpha (KL(p || q) + KL(q || p)) / 2, where p and q differ by their draws
      of dropout. It is half of equation 4 of Liang et al. 2021, https://arxiv.org/abs/2106.14448, so that
      loss and gradient keep their size: alpha is half of theirs.
    - "simcut": CE(p) + alpha KL(p || q), where q lacks the embeddings of some tokens: Gao et al. 2022,
      https://arxiv.org/abs/2206.00368.

    As in the code of both papers, gradients flow through p and q. CE is smoothed, KL compares the
    distributions as they are, in nats. The ``nll`` is that of p.
    """

    weights: PairWeights
    cut: float | None
    """Probability to cut a token; None: the passes differ by dropout alone."""

    @classmethod
    def of(cls, settings: RegularizationConfig) -> "Consistency | None":
        """Return the consistency regularisation of the settings; None without it."""
        alpha = settings.consistency_weight
        if alpha is None:
            return None
        is_symmetric = settings.consistency == "r-drop"
        weights = PairWeights(0.5, alpha / 2, alpha / 2) if is_symmetric else PairWeights(0.0, alpha, 0.0)
        return cls(weights, settings.cut)

    def second_pass(
        self,
        model: EncoderDecoder[Any, Any],
        src: Tensor,
        src_mask: Tensor,
        tgt_in: Tensor,
        src_lengths: Tensor | None,
    ) -> Tensor:
        """Run the model again, with other dropout and, if tokens are cut, without some of them."""
        if self.cut is None:
            return model.features(src, src_mask, tgt_in, src_lengths).hidden
        src = cut_tokens(src, may_cut_source(src_mask), self.cut)
        tgt_in = cut_tokens(tgt_in, may_cut_target(tgt_in), self.cut)
        with cut_embeddings(model):
            return model.features(src, src_mask, tgt_in, src_lengths).hidden


# Token cutoff: a pass in which some tokens have an embedding of zeros, for any model that embeds ids.
#
# Shen et al. 2020, https://arxiv.org/abs/2009.13818; SimCut (Gao et al. 2022) cuts tokens on both sides. The
# end of the source and the begin of the target are never cut, positions are added as ever, and the remaining
# embeddings are not scaled up, all as in the code of SimCut. A cut token is marked in the ids themselves, so
# that models reverse, pack and concatenate it like others: id k becomes -1 - k.


def may_cut_source(src_mask: Tensor) -> Tensor:
    """Return True at all real source tokens of (B, S) but the last of each sentence."""
    return torch.cat((src_mask[:, 1:], torch.zeros_like(src_mask[:, :1])), dim=1)


def may_cut_target(tgt_in: Tensor) -> Tensor:
    """Return True at all positions of (B, T) but the first."""
    return (torch.arange(tgt_in.size(1), device=tgt_in.device) > 0).expand_as(tgt_in)


def cut_tokens(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Mark ids (B, T), where ``allowed``, as cut with this probability, for ``cut_embeddings``."""
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
    is_cut = ids < 0
    embedded = type(embedding).forward(embedding, torch.where(is_cut, ~ids, ids))
    return embedded.masked_fill(is_cut.unsqueeze(-1), 0.0)


# REINFORCE, which trains hard attention.


AVERAGE_STEP = 0.1
"""Share of the last batch in the moving average of the rewards: Xu et al. 2015, section 4.1."""


def reinforce(rewards: Tensor, choices: Choices, mask: Tensor) -> Tensor:
    """Compute the REINFORCE loss of sampled source positions: sum_t (R_t - v_t)^2 / 2 - [R_t - v_t] log p_t.

    R_t is the sum of the rewards (B, T) from position t on, v_t the baseline and p_t the probability of the
    choice; no gradient flows through the brackets. The gradient of the second term estimates that of the
    negative expected log-likelihood (Williams 1992; for attention Xu et al. 2015, section 4.1); the first
    term fits the baseline. The entropy of the choices is subtracted, and a baseline that is a moving average
    moves towards the mean of R_t.
    """
    returns = cumulative_sum(rewards.flip(1)).flip(1).detach()
    advantage = returns - choices.value.to(returns.dtype)
    losses = advantage.square() / 2 - advantage.detach() * choices.logp.to(returns.dtype)
    if choices.entropy is not None:
        losses = losses - choices.entropy.to(returns.dtype)
    if choices.average is not None:
        mean = returns.where(mask, 0.0).sum() / mask.sum()
        choices.average.lerp_(mean.to(choices.average.dtype), AVERAGE_STEP)
    return losses.where(mask, 0.0).sum()


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from compare.fast import linear_cross_entropy
