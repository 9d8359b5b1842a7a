"""Speed of decoding, latency, peak memory, and the yardstick that a device's speed is a share of."""

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from compare.translate import Translator

YARDSTICK_SIZE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True, kw_only=True)
class DecodeSpeed:
    """Raw repeats of one way of decoding: what medians and spreads are taken from."""

    sentences: int
    tokens: int
    """Target tokens written, end of sentence included."""
    seconds: list[float]

    @property
    def sentences_per_s(self) -> float:
        """Median over the repeats."""
        return self.sentences / statistics.median(self.seconds)

    @property
    def tokens_per_s(self) -> float:
        """Median over the repeats."""
        return self.tokens / statistics.median(self.seconds)


def time_decoding(
    translator: Translator, lines: Sequence[str], *, beam_size: int, repeats: int
) -> DecodeSpeed:
    """Translate ``lines`` ``repeats`` times after one warm-up; the time includes splitting into tokens."""
    search = partial(translator.search, lines, beam_size)
    found = search()
    seconds = [_timed(search, translator.device) for _ in range(repeats)]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in found)
    return DecodeSpeed(sentences=len(lines), tokens=tokens, seconds=seconds)


def time_latency(translator: Translator, lines: Sequence[str], *, beam_size: int) -> list[float]:
    """Milliseconds for each line translated alone, after one warm-up."""
    translator.search(lines[:1], beam_size)
    searches = [partial(translator.search, [line], beam_size) for line in lines]
    return [1e3 * _timed(search, translator.device) for search in searches]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, interpolated."""
    return float(np.quantile(values, share))


def matmul_flops_per_s(device: torch.device, precision: str, seconds: float = 0.3) -> float:
    """The device's yardstick: operations per second of a square matrix product, best of some."""
    size = YARDSTICK_SIZE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (
        torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device, dtype) for _ in "ab"
    )
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        best = min(best, _timed(lambda: left @ right, device))
    return float(2 * size**3 / best)


def reset_peak_memory(device: torch.device) -> None:
    """Begin to measure the peak anew, so that a row does not show an earlier row's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # elsewhere the peak of the whole process is all there is
        Path("/proc/self/clear_refs").write_text("5")  # Linux: sets VmHWM back to what is used now


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory held since ``reset_peak_memory``: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that ``work`` takes, the accelerator's queue emptied before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
