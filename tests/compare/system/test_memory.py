"""The peak of memory is really measured."""

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compare.system.measure import peak_memory_bytes, reset_peak_memory, tensor_bytes

CPU = torch.device("cpu")


def resets_peaks() -> bool:
    """Linux only, and not every container."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


needs_resets = pytest.mark.skipif(not resets_peaks(), reason="this system lets no process reset its peak")


@needs_resets
def test_the_peak_is_that_since_the_reset():
    size = 96 * 2**20
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


@needs_resets
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="freed memory is returned with glibc only")
def test_memory_that_earlier_work_has_freed_is_not_counted():
    """In a process that keeps it, as trainings do: the settings last, so it is one of its own."""
    code = """
import torch
from compare.system.cpu import tune_cpu
from compare.system.measure import peak_memory_bytes, reset_peak_memory
tune_cpu()
cpu = torch.device("cpu")
reset_peak_memory(cpu)
start = peak_memory_bytes(cpu)
blocks = [torch.ones(2**18) for _ in range(200)]  # 1 MB each
grown = peak_memory_bytes(cpu)
keep = blocks[100]  # a hole above it, and one below it
del blocks
reset_peak_memory(cpu)
print((grown - start) >> 20, (peak_memory_bytes(cpu) - start) >> 20)
"""
    command = [sys.executable, "-c", code]
    grown, kept = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert grown > 150
    assert kept < 30


def test_the_peak_is_positive_without_proc(monkeypatch: pytest.MonkeyPatch):
    def absent(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert 2**20 < peak_memory_bytes(CPU) < 2**44


def test_the_tensors_of_a_model_and_its_optimizer_are_counted_once():
    """A tied matrix of 4 x 3, a bias of 4, a buffer of 2, in fp32; Adam: two moments and a step of each."""
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4))
    model[1].weight = model[0].weight
    model.register_buffer("more", torch.zeros(2))
    optimizer = torch.optim.AdamW(model.parameters())
    assert tensor_bytes(model) == 4 * (12 + 4 + 2)
    assert tensor_bytes(optimizer) == 0
    model[1](model[0](torch.tensor([1]))).sum().backward()
    optimizer.step()
    assert tensor_bytes(model, optimizer) == 4 * (12 + 4 + 2 + 2 * (12 + 4) + 2)
