"""Settings of the processor's libraries: the same figures, sooner."""

import ctypes
import os
import platform
from contextlib import suppress

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""
FEWEST_KEPT, MOST_KEPT = 64, 1_024
"""Compiled products that oneDNN and torch's layer above it keep: a search needs 60; 1,024 are the default."""
TOKENS_KEPT = 64 * 3_340
"""Compiled products times tokens of a batch: each product that is kept costs about a tensor's memory."""
PROBE_SIZE, EXACT = 512, 1e-5
"""Side of the matrices that tell fp32 from less, and the most that an fp32 product is off, relatively."""


def tune_cpu(*, batch_tokens: int | None = None) -> None:
    """Make this process train and decode as fast as its processor can; changes no precision.

    Args:
        batch_tokens: of the batches it trains on. One that only decodes has memory to spare for all that it
            compiles, and is a tenth faster for it.
    """
    _keep_freed_memory()
    if batch_tokens is not None:
        _keep_few_compiled(min(max(FEWEST_KEPT, TOKENS_KEPT // batch_tokens), MOST_KEPT))
    _multiply_by_onednn()


def _keep_freed_memory() -> None:
    """Never give freed memory back before the end of the process; does nothing without glibc.

    By default every tensor over 32 MB is mapped and unmapped, zeroed pages and all, at each update.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _keep_few_compiled(kept: int) -> None:
    """Bound the products that stay compiled, unless the user's environment does; before the first product.

    Each batch's sizes are new, and each size is compiled, in 0.2 ms. The thousand kept by default lie between
    the tensors, so that freed space cannot be joined: training grew from 1.2 to 3 GB within 80 updates.
    """
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(cache, str(kept))


def _multiply_by_onednn() -> None:
    """Send fp32 matrix products to oneDNN instead of MKL, where oneDNN computes them in fp32.

    MKL leaves AVX-512 unused on processors that are not Intel's: 109 GFLOP/s a core against 245. torch has no
    switch but leave to use bfloat16, which oneDNN takes where the processor has AMX, and nowhere else.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    if not _multiplies_in_fp32():
        setting.fp32_precision = before


def _multiplies_in_fp32() -> bool:
    """Whether a product of fp32 matrices is what fp32 makes of it; bfloat16 is off by 2e-3."""
    random = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, PROBE_SIZE, PROBE_SIZE, generator=random)
    exact = left.double() @ right.double()
    return bool(((left @ right) - exact).abs().max() < EXACT * exact.abs().max())
