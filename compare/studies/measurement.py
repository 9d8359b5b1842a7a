"""Measurements of the studies: operations, bytes, seconds and errors."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products in ``work`` with torch's counter.

    Attention runs without fused kernels, since the counter misses those of a CPU.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2


def saved_bytes(work: Callable[[], object]) -> int:
    """Count the bytes of the tensors that ``work`` saves for its backward pass, each storage once."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # a reference keeps its address in use
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        result = work()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def relative_error(values: Tensor, expected: Tensor) -> float:
    """Compute the largest difference as a share of the largest expected value."""
    return float((values - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> Tensor:
    """Draw standard normal numbers in float64, where rounding errors are near 1e-16."""
    return torch.randn(*shape, dtype=torch.float64)
