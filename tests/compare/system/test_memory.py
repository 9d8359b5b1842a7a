"""The peak of memory is really measured."""

import mmap
from pathlib import Path

import pytest
import torch

from compare.system.memory import peak_memory_bytes, reset_peak_memory

CPU = torch.device("cpu")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is reset on Linux only")
def test_the_peak_is_that_since_the_reset():
    size = 96 * 2**20
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let a process reset its peak")
    reset_peak_memory(CPU)
    before = peak_memory_bytes(CPU)
    with mmap.mmap(-1, size) as block:  # from the system itself: the C library may hold freed memory
        for place in range(0, size, mmap.PAGESIZE):
            block[place] = 1
        held = peak_memory_bytes(CPU)
    assert held - before > 0.8 * size
    assert peak_memory_bytes(CPU) - before > 0.8 * size  # a peak stays
    reset_peak_memory(CPU)
    assert peak_memory_bytes(CPU) < held - 0.8 * size


def test_the_peak_is_positive_without_proc(monkeypatch: pytest.MonkeyPatch):
    def absent(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert 2**20 < peak_memory_bytes(CPU) < 2**44
