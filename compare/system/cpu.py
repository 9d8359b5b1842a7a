"""Settings of the CPU libraries under torch, for speed at the same precision."""

import ctypes
import os
import platform
from contextlib import suppress

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""
MIN_KERNELS, MAX_KERNELS = 64, 1_024
"""Range of the number of cached oneDNN kernels: a search needs 60; 1,024 is the default."""
KERNELS_TIMES_TOKENS = 64 * 3_340
"""Cached kernels times tokens per batch: each cached kernel costs about as much memory as a tensor."""
PROBE_SIZE, FP32_ERROR = 512, 1e-5
"""Size of the matrices that tell fp32 from lower precisions, and the largest relative error of fp32."""


def tune_cpu(*, batch_tokens: int | None = None) -> None:
    """Make training and decoding in this process as fast as the CPU allows; the precision stays the same.

    Args:
        batch_tokens: tokens per training batch. None for a process that only decodes: it has the memory to
            cache all compiled kernels, which makes it about 10% faster.
    """
    _keep_freed_memory()
    if batch_tokens is not None:
        _limit_kernel_cache(min(max(MIN_KERNELS, KERNELS_TIMES_TOKENS // batch_tokens), MAX_KERNELS))
    _multiply_by_onednn()


def _keep_freed_memory() -> None:
    """Keep freed memory in the process instead of returning it to the system; glibc only.

    By default each tensor over 32 MB is mapped, zeroed and unmapped again at every update.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _limit_kernel_cache(capacity: int) -> None:
    """Limit the compiled kernels that oneDNN and torch cache, unless the user's environment does.

    Takes effect only before the first matrix product. Nearly every batch has new sizes, and compiling a
    kernel for them takes 0.2 ms. The 1,024 kernels cached by default fragment the heap: training grew from
    1.2 to 3 GB within 80 updates.
    """
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
