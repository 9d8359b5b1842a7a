"""Code that only speed needs: oneDNN, packed layers, copies for decoding, the best continuations, the loss.

Delete this file and everything works, slower: each module imports these in place of its plain functions of
the same name. The gains are those of benchmarks/LOG.md and of the commits that brought them.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

# Speed on a CPU: settings of the libraries under torch.


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""
MIN_KERNELS, MAX_KERNELS = 64, 1_024
"""Range of the number of cached oneDNN kernels: a search needs 60; 1,024 is the default."""
KERNELS_TIMES_TOKENS = 64 * 3_340
"""Cached kernels times tokens per batch: each cached kernel costs about as much memory as a tensor."""
PROBE_SIZE, FP32_ERROR = 512, 1e-5
"""Size of the matrices that tell fp32 from lower precisions, and the largest relative error of fp32."""


def tune_cpu(*, batch_tokens: int | None = None) -> None:
    """Choose oneDNN for fp32 products, keep freed memory, limit the cache of kernels.

    With dropout and attention of ``transformer.fast``, training is faster: Transformer 6,405 -> 10,860
    tokens/s, Luong general 8,443 -> 12,550, additive 7,560 -> 10,960, Bahdanau 7,064 -> 10,490. A process
    that only decodes, without ``batch_tokens``, caches all compiled kernels: about 10% faster.
    """
    _keep_freed_memory()
    if batch_tokens is not None:
        _limit_kernel_cache(min(max(MIN_KERNELS, KERNELS_TIMES_TOKENS // batch_tokens), MAX_KERNELS))
    _multiply_by_onednn()


def _keep_freed_memory() -> None:
    """Keep freed memory in the process instead of returning it to the system; glibc only.

    By default each tensor over 32 MB is mapped, zeroed and unmapped again at every update. The gain has not
    been measured alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _limit_kernel_cache(capacity: int) -> None:
    # Nearly every batch has new sizes, and compiling a kernel for them takes 0.2 ms. The 1,024 kernels cached
    # by default fragment the heap: training grew from 1.2 to 3 GB within 80 updates. In bf16 a limit is also
    # faster, since less memory is new: Transformer 16.7 -> 18.4, Luong general 14.7 -> 18.3 thousand
    # tokens/s.
    # It takes effect only before the first matrix product, and unless the user's environment sets one.
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(capacity))


def _multiply_by_onednn() -> None:
    """Compute fp32 matrix products with oneDNN instead of MKL, if oneDNN computes them in fp32.

    MKL does not use AVX-512 on processors of other makers than Intel: 109 GFLOP/s per core against 245. In
    torch the only switch to oneDNN is to permit bfloat16, which oneDNN uses on processors with AMX alone.
    Nothing changes where the user's program has chosen a precision.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    if setting.fp32_precision != "none":
        return
    if torch.accelerator.is_available():  # torch's older switch, below, would permit TF32 there
        setting.fp32_precision = "bf16"
        if not _multiplies_in_fp32():
            setting.fp32_precision = "none"
    else:  # the newer one lets get_float32_matmul_precision() fail, which torch.compile calls
        torch.set_float32_matmul_precision("medium")
        if not _multiplies_in_fp32():
            torch.set_float32_matmul_precision("highest")


def sends_fp32_to_onednn() -> bool:
    """Return whether ``tune_cpu`` has sent fp32 matrix products to oneDNN in this process."""
    return str(torch.backends.mkldnn.matmul.fp32_precision) == "bf16"  # type: ignore[attr-defined]


def _multiplies_in_fp32() -> bool:
    """Test whether fp32 matrices are multiplied in fp32; in bfloat16 the relative error would be 2e-3."""
    random = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, PROBE_SIZE, PROBE_SIZE, generator=random)
    exact = left.double() @ right.double()
    return bool(((left @ right) - exact).abs().max() < FP32_ERROR * exact.abs().max())


# Linear layers whose weights are stored in the layout of oneDNN's kernels, for decoding on a CPU.
#
# At every product oneDNN copies the weights into blocks as its kernel reads them. With the few rows of a
# decoding step this copy takes as long as the product itself. torch has operators that copy once and then
# multiply by the copy, which torch.compile calls. They are not public: where they are missing or disagree
# with ``torch.nn.functional.linear``, layers stay as they are. In fp32 they also stay unless ``tune_cpu`` has
# sent products to oneDNN, which it does not do on processors of Intel with AMX.


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
MIN_MULTIPLY_ADDS = 2**20
"""Size of the smallest packed product: calling torch's operator costs more than it saves below."""


class PackedLinear(nn.Linear):
    """y = W x + b with a second copy of W, in oneDNN's layout, made of the first when it is first used.

    The first copy serves gradients, single rows, and whoever reads ``weight``. Later changes of it do not
    reach the second.
    """

    def __init__(self, layer: nn.Linear) -> None:
        self.__dict__.update(vars(layer), _parameters=layer._parameters.copy())  # far faster than to create
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        if torch.is_grad_enabled() or x.dtype is not self.weight.dtype or not self._is_faster(x):
            return super().forward(x)
        if self.packed is None:
            self.packed = _pack(self.weight)
        return _multiply(x, self.packed, self.bias)

    def _is_faster(self, x: Tensor) -> bool:
        several_rows = x.numel() > self.in_features  # for a product with one vector nothing is copied
        is_large = x.numel() * self.out_features >= MIN_MULTIPLY_ADDS
        return several_rows and is_large and not torch.is_autocast_enabled(x.device.type)


def is_packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a ``PackedLinear`` computes the same as this module, and torch can pack its dtype.

    It does not in place of modules of subclasses, of hooks, such as those of weight normalisation and
    pruning, or of weights that are no plain tensors, such as quantised ones.
    """
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    weight = module.weight
    return (
        "forward" not in vars(module)
        and type(weight) is nn.Parameter
        and weight.is_contiguous()
        and weight.numel() > 0
        and weight.device.type == "cpu"
        and packs(weight.dtype)
    )


def packs(dtype: torch.dtype) -> bool:
    """Return whether linear layers with weights of a dtype are packed in this process."""
    by_onednn = dtype is torch.bfloat16 or (dtype is torch.float32 and sends_fp32_to_onednn())
    return by_onednn and _agrees(dtype)


@cache
def _agrees(dtype: torch.dtype) -> bool:
    """Test whether the operators exist and compute the product of ``linear``."""
    random = torch.Generator().manual_seed(0)
    shapes = (3, 2, 64), (96, 64), (96,)
    x, weight, bias = (torch.rand(*shape, generator=random).to(dtype) for shape in shapes)
    weight = weight / 64
    try:
        with torch.no_grad():
            difference = _multiply(x, _pack(weight), bias) - linear(x, weight, bias)
    except (AttributeError, RuntimeError):
        return False
    return bool(difference.abs().max() <= TOLERANCE[dtype])


def _pack(weight: Tensor) -> Tensor:
    operators: Any = torch.ops.mkldnn
    packed: Tensor = operators._reorder_linear_weight(weight.detach())
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    operators: Any = torch.ops.mkldnn
    product: Tensor = operators._linear_pointwise(x, packed, bias, "none", [], "")
    return product


# Copies of models that decode faster on a CPU, made anew for every search.


Module = TypeVar("Module", bound=nn.Module)

_REGISTERED = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")


def decoding_copy(model: Module, *, always: bool = False) -> Module:
    """Return a copy of a model for as long as its weights stay, or the model itself where none is faster.

    In the copy linear layers are packed (``PackedLinear``), and modules with a method ``prepare_decoding``
    are copied and told to prepare; it may give the copy other parameters, buffers and modules, and must not
    write to those that it has. Everything else, parameters included, is the model's own. A copy takes less
    than a millisecond at the sizes of the demo.

    A search of 64 sentences is 1.16 (greedy) and 1.15 (beam 5) times as fast by Luong's general model, 1.16
    and 1.14 by the additive one, 1.02 and 1.09 by the Transformer.
    """
    parameter = next(model.parameters(), None)
    can_gain = parameter is not None and parameter.device.type == "cpu" and packs(parameter.dtype)
    return _copy(model, {}) if can_gain or always else model


def _copy(module: Module, copies: dict[nn.Module, nn.Module]) -> Module:
    """Return the copy of a module, or itself if nothing in it changes.

    As a key of ``copies`` a module stays alive, and no other one gets its identity.
    """
    if module not in copies:
        copies[module] = PackedLinear(module) if is_packable(module) else _copy_tree(module, copies)
    return copies[module]  # type: ignore[return-value]


def _copy_tree(module: nn.Module, copies: dict[nn.Module, nn.Module]) -> nn.Module:
    result = module
    if hasattr(module, "prepare_decoding"):  # for a search, in which no weight changes
        result = prepared = _shallow(module)
        prepared.prepare_decoding()  # type: ignore[operator]
    children = {name: child for name, child in result._modules.items() if child is not None}
    changed = {name: copy for name, child in children.items() if (copy := _copy(child, copies)) is not child}
    if changed:
        result = _shallow(module) if result is module else result
        result._modules.update(changed)
    return result


def _shallow(module: Module) -> Module:
    result = object.__new__(type(module))
    result.__dict__.update(module.__dict__)
    result.__dict__.update({name: module.__dict__[name].copy() for name in _REGISTERED})
    return result


# The best continuations of hypotheses, with ties in a fixed order.


BLOCK = 64
"""Size of the blocks of adjacent vocabulary entries whose maxima are compared before single entries."""


def best_continuations(scores: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Search the ``count`` blocks with the largest maxima alone.

    These maxima precede the entries of all other blocks. Taking maxima costs a tenth of sorting. Forced beam
    search with 5 hypotheses on one core: Transformer 90 -> 104, Luong general 109 -> 130 sentences/s.
    """
    size = logp.size(2)
    if size % BLOCK:  # pad copies the tensor even if there is nothing to add
        logp = pad(logp, (0, -size % BLOCK), value=float("-inf"))
    width = logp.size(2)
    blocks = logp.view(len(logp), -1, BLOCK)  # (B, K * blocks per hypothesis, BLOCK)
    block_scores = scores.repeat_interleave(width // BLOCK, dim=1)
    chosen = stable_topk(blocks.amax(2) + block_scores, min(count, blocks.size(1)))[1].sort(dim=1).values
    sums = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK))
    sums = sums + block_scores.gather(1, chosen).unsqueeze(2)
    best, index = stable_topk(sums.flatten(1), min(count, scores.size(1) * size))
    position = chosen.gather(1, index // BLOCK) * BLOCK + index % BLOCK  # k * width + v
    return best, position // width, (position % width).clamp(max=size - 1)  # padding has score -inf


def sorts_all(values: Tensor) -> bool:
    """Return whether sorting all rows takes less time than to wait for the answer whether some are tied."""
    return values.device.type != "cpu"


def stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Select by ``torch.topk``, which leaves open the order of equal values, and which of them it returns.

    One value more than needed shows where equal values do not all fit: these few rows are sorted as a whole.
    """
    if count == 1:
        best = values.max(dim=-1, keepdim=True)  # documented to return the first of equal values
        return best.values, best.indices
    if sorts_all(values):
        top, index = values.sort(stable=True, descending=True)
        return top[..., :count], index[..., :count]
    size = values.size(-1)
    top, index = values.topk(min(count + 1, size))
    if size > count:
        tied = (top[..., count - 1] == top[..., count]) & top[..., count].isfinite()
        if tied.any():
            top[tied], index[tied] = (
                part[..., : count + 1] for part in values[tied].sort(stable=True, descending=True)
            )
        top, index = top[..., :count], index[..., :count]
    by_index = index.argsort(dim=-1)
    top, index = top.gather(-1, by_index), index.gather(-1, by_index)
    order = top.argsort(dim=-1, descending=True, stable=True)
    return top.gather(-1, order), index.gather(-1, order)


# Cross-entropy of the output layer, of one pass of a model or of two that are compared.
#
# Shapes: N real target tokens, D hidden size, V vocabulary.


CHUNK_ELEMENTS = 1 << 22
"""Maximum number of logits in memory at once: 16 MB in fp32, which fits the last-level cache of a CPU."""
GPU_CHUNK_ELEMENTS = 1 << 27
GPU_CHUNK_ROWS = 4096
"""Maximum number of rows of logits there: enough to keep a GPU busy, and few chunks per update."""
Pair = tuple[float, float, float] | None
"""Weights of the parts of the loss of two passes: ``training.loss.PairWeights``."""


def linear_cross_entropy(
    passes: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    pair: Pair = None,
) -> tuple[Tensor, Tensor]:
    """Compute the loss and its gradients at once, in chunks of N, so that no (N, V) tensor is ever stored.

    Forward and backward pass of 2,048 tokens of 256 numbers with 10,000 words: 352 instead of 399 ms of
    processor time (fp32, one thread of a shared AMD EPYC, in turn, median of 7).
    """
    if not torch.is_grad_enabled():  # ``ctx.needs_input_grad`` ignores no_grad
        weight, *passes = (tensor.detach() for tensor in (weight, *passes))
        bias = None if bias is None else bias.detach()
    loss, nll = _LinearCrossEntropy.apply(weight, bias, targets, smoothing, pair, *passes)  # type: ignore[no-untyped-call]
    return loss, nll


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Any, targets: Tensor, smoothing: float, pair: Pair, *passes: Tensor
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
        return weight * grad, bias, None, None, None, *(gradient * grad for gradient in passes)


class _Gradients(NamedTuple):
    """Gradients of the loss with respect to weight, bias and the passes."""

    weight: Tensor
    bias: Tensor | None
    passes: list[Tensor]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, passes: Sequence[Tensor]) -> "_Gradients":
        zero = torch.zeros_like
        return cls(zero(weight), None if bias is None else zero(bias), [zero(hidden) for hidden in passes])

    def add(
        self, chunk: slice, logits_grads: Sequence[Tensor], inputs: Sequence[Tensor], weight: Tensor
    ) -> None:
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
    logits: Sequence[Tensor], targets: Tensor, smoothing: float, pair: tuple[float, float, float]
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
    log_ratio -= (reference + nll - nll_q).unsqueeze(1)  # log Z = reference logit + nll
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
