"""Places of children, and their number."""

from pathlib import Path

import pytest

from compare.system import slots
from compare.system.slots import count_jobs, local_slots, parse_jobs, visible_gpus
from tests.kits.cli import Refusal


def test_slots_divide_cores_or_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots, "split_processors", lambda number: [[index] for index in range(number)])
    two = local_slots("cpu", 2)
    assert [(slot.threads, slot.processors, slot.gpu) for slot in two] == [(1, [0], None), (1, [1], None)]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [slot.gpu for slot in local_slots("cuda", 3)] == ["0", "1", "0"]
    assert not any(slot.processors for slot in local_slots("cuda", 3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-abc")
    assert visible_gpus() == ["5", "GPU-abc"]
    assert [slot.gpu for slot in local_slots("cuda:1", 2)] == [None, None]  # the device that the config names


def test_the_value_of_jobs(monkeypatch: pytest.MonkeyPatch, refusal: Refusal, tiny_toml: Path):
    assert [parse_jobs(text) for text in ("auto", "1", "12")] == [0, 1, 12]
    for text in ("0", "-1", "two", "1001", "²", ""):
        assert refusal("run", tiny_toml, "--jobs", text) == (
            f"--jobs {text}: must be auto, or a whole number from 1 to 1,000"
        )
    monkeypatch.setattr(slots, "usable_processors", lambda: list(range(7)))
    monkeypatch.setattr(slots, "count_cores", len)
    monkeypatch.setattr(slots, "visible_gpus", lambda: ["0", "1", "2", "3"])
    assert [count_jobs(jobs, device) for jobs in (0, 5) for device in ("cpu", "cuda")] == [3, 4, 5, 5]
    monkeypatch.setattr(slots, "usable_processors", lambda: [0])
    assert count_jobs(0, "cpu") == 1
