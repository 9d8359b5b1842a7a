"""Description of this machine, with the clock as Linux reports it."""

from pathlib import Path

import pytest
import torch

from compare.system import processor
from compare.system.device import this_machine

CPU = torch.device("cpu")


def test_the_clock_is_the_median_of_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert this_machine(CPU).clock_mhz is None
    lines = [f"processor\t: 0\nmodel name\t: Abacus\ncpu MHz\t\t: {mhz}\n" for mhz in (800, 3600.5, 2100)]
    (tmp_path / "cpuinfo").write_text("".join(lines))
    machine = this_machine(CPU)
    assert (machine.device, machine.clock_mhz) == ("Abacus", 2100.0)
    assert (machine.torch, machine.threads) == (torch.__version__, torch.get_num_threads())
    assert machine.cores >= 1
