"""Training loss: label-smoothed cross-entropy in chunks of logits, and REINFORCE for hard attention.

Shapes: B sentences, T target positions, N real target tokens, D hidden size, V vocabulary.
"""

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder, Features

CHUNK_ELEMENTS = 1 << 22
"""Maximum number of logits in memory at once: 16 MB in fp32, which fits the last-level cache of a CPU."""
GPU_CHUNK_ELEMENTS = 1 << 27
"""The same on a GPU: 512 MB in fp32."""
GPU_CHUNK_ROWS = 4096
"""Maximum number of rows of logits there: enough to keep a GPU busy, and few chunks per update."""


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


ModelInputs = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Arguments of ``compute_features``: src (B, S), src_mask (B, S), tgt_in (B, T) and src_lengths (B,)."""


class TranslationLoss(nn.Module):
    """Loss of a model on a batch, summed over the real target tokens; padding contributes nothing."""

    def __init__(self, model: EncoderDecoder[Any, Any], label_smoothing: float) -> None:
        """Wrap a model; ``label_smoothing`` is the probability spread over the vocabulary, in [0, 1)."""
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.takes_lengths = "src_lengths" in inspect.signature(model.features).parameters
        self._returns: list[tuple[Tensor, Tensor, int]] = []
        """Of each part of the update so far: the moving average, the sum of returns, and their number."""

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
            src_lengths: number of real source tokens of each sentence, on the CPU, (B,); passed on to models
                whose ``features`` has an argument of this name.
        """
        inputs = (src, src_mask, tgt_in, src_lengths)
        features = self.compute_features(*inputs)
        real = find_real(tgt_mask, tgt_tokens)
        targets = tgt_out.flatten().index_select(0, real)
        minimised, nll = self.cross_entropy(features, real, targets, inputs)
        if features.choice_logp is not None and features.value is not None:
            rewards = nll.new_zeros(tgt_mask.numel()).index_copy(0, real, -nll).view(tgt_mask.shape)
            minimised = minimised + reinforce(rewards, features.choice_logp, features.value, tgt_mask)
            if (entropy := getattr(features, "entropy", None)) is not None:
                minimised = minimised - entropy.to(minimised.dtype).where(tgt_mask, 0.0).sum()
            if (average := getattr(features, "average", None)) is not None:
                returns = _sum_from_each_position(rewards).detach().where(tgt_mask, 0.0)
                self._returns.append((average, returns.sum(), real.numel()))
        return LossSums(minimised, nll.sum(), int(real.numel()))

    def end_update(self) -> None:
        """Move the average of REINFORCE towards the mean return of the batch, whose parts do not matter."""
        if not self._returns:
            return
        averages, sums, numbers = zip(*self._returns, strict=True)
        self._returns.clear()
        average, mean = averages[0], torch.stack(sums).sum() / max(sum(numbers), 1)
        average.lerp_(mean.to(average.dtype), AVERAGE_STEP)

    def cross_entropy(
        self, features: Features, real: Tensor, targets: Tensor, inputs: ModelInputs
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of the predictions; subclasses may compare them with those of further passes.

        Args:
            features: those of the batch.
            real: indices of the real target tokens among its B * T positions, (N,).
            targets: ids to predict there, (N,).
            inputs: arguments of ``compute_features`` that gave ``features``.

        Returns:
            The loss, summed over N, and, without gradient, the negative log-likelihoods, (N,).
        """
        hidden = features.hidden.flatten(0, 1).index_select(0, real)  # (N, D): no logits for padding
        weight, bias = self.output_layer()
        return linear_cross_entropy(hidden, weight, bias, targets, self.label_smoothing)

    def compute_features(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, src_lengths: Tensor | None
    ) -> Features:
        """Run the model up to its output layer; arguments as for ``forward``."""
        lengths = {"src_lengths": src_lengths} if self.takes_lengths else {}
        return self.model.features(src, src_mask, tgt_in, **lengths)

    def output_layer(self) -> tuple[Tensor, Tensor]:
        """Return weight (V, D) and bias (V,) of the output layer; a bias of zeros where it has none."""
        output = self.model.output
        bias = output.bias if output.bias is not None else output.weight.new_zeros(output.out_features)
        return output.weight, bias


def find_real(tgt_mask: Tensor, tgt_tokens: int | None) -> Tensor:
    """Find the N real positions of a flattened mask (B, T): their indices, (N,).

    Args:
        tgt_mask: True at real target tokens, (B, T).
        tgt_tokens: N, or None to count them, for which the host waits until a GPU has finished.
    """
    mask = tgt_mask.flatten()
    indices = mask.nonzero() if tgt_tokens is None else mask.nonzero_static(size=tgt_tokens)
    return indices.squeeze(1)


def reinforce(rewards: Tensor, choice_logp: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Compute the REINFORCE loss of sampled source positions: sum_t (R_t - v_t)^2 / 2 - [R_t - v_t] log p_t.

    R_t is the sum of the rewards from position t on, v_t the baseline and p_t the probability of the choice;
    no gradient flows through the brackets. The gradient of the second term estimates that of the negative
    expected log-likelihood (Williams 1992; for attention Xu et al. 2015, section 4.1); the first term fits
    the baseline.

    Args:
        rewards: log-likelihood of each reference token, 0 at padding, (B, T).
        choice_logp: log-probability of the position sampled for that token, (B, T).
        value: the baseline, (B, T).
        mask: True at real tokens, (B, T).

    Returns:
        The loss, summed over real tokens, scalar.
    """
    returns = _sum_from_each_position(rewards).detach()
    advantage = returns - value.to(returns.dtype)
    losses = advantage.square() / 2 - advantage.detach() * choice_logp.to(returns.dtype)
    return losses.where(mask, 0.0).sum()


def _sum_from_each_position(rewards: Tensor) -> Tensor:
    """Compute R_t = r_t + ... + r_T of rewards (B, T)."""
    if rewards.is_cuda and torch.are_deterministic_algorithms_enabled():  # which torch's cumsum is not
        with torch.autocast("cuda", enabled=False):
            return rewards @ rewards.new_ones(rewards.size(1), rewards.size(1)).tril()
    return rewards.flip(1).cumsum(1).flip(1)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of ``hidden @ weight.T + bias`` against smoothed targets, summed.

    The target distribution has (1 - smoothing) on the reference plus smoothing / V on every entry (Szegedy et
    al. 2016, section 7; as in ``torch.nn.functional.cross_entropy``).

    Args:
        hidden: inputs of the output layer, (N, D).
        weight: matrix of the output layer, (V, D).
        bias: its bias, (V,).
        targets: reference ids, (N,).
        smoothing: probability spread over the vocabulary, in [0, 1).

    Returns:
        The smoothed loss, summed over N, and, without gradient, the negative log-likelihoods (N,).
    """
    if not torch.is_grad_enabled():  # ``ctx.needs_input_grad`` ignores no_grad
        hidden, weight, bias = hidden.detach(), weight.detach(), bias.detach()
    smoothed, nll = _LinearCrossEntropy.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return smoothed, nll


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients in one pass over chunks of N, so that no (N, V) tensor is ever stored."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        needs_grad = any(ctx.needs_input_grad)
        with torch.autocast(device, enabled=False):
            cast_weight = weight.to(dtype)
            grads = [torch.zeros_like(tensor) for tensor in (hidden, weight, bias) if needs_grad]
            smoothed, nll = weight.new_zeros(()), weight.new_empty(hidden.size(0))
            chunk_size = chunk_rows(weight)
            for start in range(0, hidden.size(0), chunk_size):
                chunk = slice(start, start + chunk_size)
                logits, inputs = compute_logits(hidden[chunk], cast_weight, bias)
                nll[chunk], loss = compute_losses(logits, targets[chunk], smoothing)
                smoothed += loss
                if needs_grad:
                    logits_grad = subtract_targets(logits, targets[chunk], smoothing)
                    add_output_gradients(grads, chunk, logits_grad, inputs, cast_weight)
        ctx.grads = grads
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the training loss has no second derivatives, so create_graph=True would give wrong ones: "
                "use torch.nn.functional.cross_entropy on the logits of model(src, src_mask, tgt_in)"
            )
        hidden, weight, bias = (stored * grad for stored in ctx.grads)
        return hidden, weight, bias, None, None


def chunk_rows(weight: Tensor) -> int:
    """Choose the number of rows of logits in memory at once, for the output matrix ``weight`` (V, D)."""
    if weight.device.type == "cpu":
        return max(1, CHUNK_ELEMENTS // weight.size(0))
    return max(1, min(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // weight.size(0)))


def compute_logits(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Compute logits, in the dtype of ``bias``, and cast the inputs to the dtype of ``weight``."""
    inputs = hidden.to(weight.dtype)
    return (inputs @ weight.t()).to(bias.dtype).add_(bias), inputs


def compute_losses(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
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


def subtract_targets(gradient: Tensor, targets: Tensor, smoothing: float, share: float = 1.0) -> Tensor:
    """Subtract ``share`` times the smoothed targets from a tensor (N, V), in place.

    From probabilities it makes the gradient of the loss with respect to the logits.
    """
    if smoothing:
        gradient -= share * smoothing / gradient.size(1)
    reference = gradient.new_full((len(targets), 1), share * (smoothing - 1))
    return gradient.scatter_add_(1, targets.unsqueeze(1), reference)


def add_output_gradients(
    grads: list[Tensor], chunk: slice, logits_grad: Tensor, inputs: Tensor, weight: Tensor
) -> None:
    """Add the contribution of a chunk to the gradients of hidden, weight and bias."""
    hidden_grad, weight_grad, bias_grad = grads
    bias_grad += logits_grad.sum(dim=0)
    logits_grad = logits_grad.to(weight.dtype)
    hidden_grad[chunk] = logits_grad @ weight
    weight_grad += logits_grad.t() @ inputs
