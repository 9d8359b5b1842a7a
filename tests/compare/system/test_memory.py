"""The peak of memory is really measured."""

import mmap
from pathlib import Path

import pytest
import torch

from compare.system.memory import gpu_memory_in_use, peak_memory_bytes, reset_peak_memory, tensor_bytes

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
    assert gpu_memory_in_use(CPU) == 0
