"""Energy: counters as Linux and NVIDIA's library show them, and what a training books as its own."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from compare.experiment.compute_result import training_figures
from compare.system import measure as energy
from compare.system.measure import EnergyMeter
from compare.system.signals import Interrupted
from data.batches import BatchStream
from tests.kits.training import bleus, make_stream, metrics, trainer

CPU = torch.device("cpu")
stream = pytest.fixture(scope="module")(make_stream)


@pytest.fixture(autouse=True)
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the system's, without a counter."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "powercap")
    return tmp_path / "powercap"


def package(powercap: Path, name: str, microjoules: int, most: int = 10**9) -> Path:
    """A counter as RAPL shows it."""
    folder = powercap / name
    folder.mkdir(parents=True)
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


def test_packages_are_added_and_their_parts_are_not(powercap: Path):
    first = package(powercap, "intel-rapl:0", 1_000_000)
    second = package(powercap, "intel-rapl:1", 999_000_000)
    part = package(powercap, "intel-rapl:0:0", 0)
    meter = EnergyMeter(CPU)
    first.write_text("3500000")
    second.write_text("1000000")  # it began again at 0 after 999,999,999 + 1
    part.write_text("900000000")
    assert meter.take() == pytest.approx(2.5 + 2.000001)
    assert meter.take() == 0


def test_without_a_counter_that_may_be_read_energy_is_not_known(powercap: Path):
    assert EnergyMeter(CPU).take() is None
    package(powercap, "intel-rapl:0", 5).unlink()
    assert EnergyMeter(CPU).take() is None


def test_a_gpu_is_added_and_without_its_counter_nothing_is_known(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
):
    class NVMLError(Exception):
        """As the library's own."""

    millijoules = {"GPU-abc": 1_000}
    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: millijoules[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    counter = package(powercap, "intel-rapl:0", 0)
    meter = EnergyMeter(torch.device("cuda"))
    millijoules["GPU-abc"] = 8_000
    counter.write_text("2000000")
    assert meter.take() == pytest.approx(9.0)

    def refuse(handle: str) -> int:
        raise NVMLError

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert EnergyMeter(torch.device("cuda")).take() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert EnergyMeter(torch.device("cuda")).take() is None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that counts joules, moved by the tests."""
    clock = SimpleNamespace(joules=100.0)

    def packages() -> Iterator[energy.JouleCounter]:
        yield lambda: clock.joules

    monkeypatch.setattr(energy, "_packages", packages)
    return clock


def test_training_books_its_own_energy_and_not_that_of_validation(
    stream: BatchStream, tmp_path: Path, counted: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    """An update costs 2 J, validating 1,000; the run is stopped between two log lines and resumed."""

    def costing(run, stop_at: int = 0):
        update, validate, save = run._update, run.validate, run.checkpoints.save

        def costly_update(*arguments):
            counted.joules += 2
            update(*arguments)
            if run.state.update == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)

        def costly(work):
            def spend(*arguments):
                counted.joules += 1_000
                return work(*arguments)

            return spend

        run._update, run.validate, run.checkpoints.save = costly_update, costly(validate), costly(save)
        return run

    settings = {"max_updates": 9, "valid_every": 4, "log_every": 3, "checkpoint_every": 5}
    with pytest.raises(Interrupted):
        costing(trainer(stream, tmp_path, bleus(1), **settings), stop_at=7).run()
    counted.joules += 50_000  # between the two
    costing(trainer(stream, tmp_path, bleus(1), **settings)).run()
    lines = metrics(tmp_path)
    windows = [line for line in lines if line["kind"] == "train"]
    assert [(line["updates"], line["joules"]) for line in windows] == [(3, 6), (1, 2), (2, 4), (2, 4), (1, 2)]
    figures = training_figures(lines, stream)
    assert figures["energy_j_per_1k_tokens"] == pytest.approx(18_000 / figures["tokens_seen"])


def test_energy_of_which_a_part_is_not_known_is_not_known(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    lines = metrics(tmp_path)
    assert training_figures(lines, stream)["energy_j_per_1k_tokens"] is None
    known = [line | {"joules": 1.0} for line in lines]
    assert training_figures(known, stream)["energy_j_per_1k_tokens"] > 0
    assert training_figures([lines[0], *known[1:]], stream)["energy_j_per_1k_tokens"] is None
