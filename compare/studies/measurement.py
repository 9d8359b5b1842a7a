"""How studies measure: operations, bytes, seconds, exponents, errors."""

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products in ``work``, by torch's counter.

    Attention goes through plain products for it: of the fused kernels of a CPU it counts nothing.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2


def kept_bytes(work: Callable[[], object]) -> int:
    """Count the bytes of the tensors that ``work`` keeps for its backward pass, each storage once."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no other gets its address
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        result = work()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def best_seconds(work: Callable[[], object], *, at_least: float = 0.3, repeats: int = 5) -> float:
    """The least time of ``work`` in ``repeats`` runs or more, for ``at_least`` seconds, after a warm-up.

    The least, since all that disturbs a clock makes it run longer.
    """
    work()
    seconds: list[float] = []
    while len(seconds) < repeats or sum(seconds) < at_least:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The largest difference as a share of the largest value expected."""
    return float((found - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> Tensor:
    """Standard normal numbers in float64, where rounding errors are near 1e-16."""
    return torch.randn(*shape, dtype=torch.float64)
