"""Peaks of data sheets, and the measured one: the fastest of several products, in the requested precision."""

from collections.abc import Iterator

import pytest
import torch

from compare.system import measure as timing
from compare.system.measure import MATRIX_SIZE, PEAK_TFLOPS, matmul_flops_per_s, peak_flops

CPU = torch.device("cpu")


def test_the_measured_peak_is_the_best_of_some_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(MATRIX_SIZE, "cpu", 10)
    times: Iterator[float] = iter([0.5, 0.125, 0.25])  # 0.875 s together
    monkeypatch.setattr(timing, "timed", lambda work, device: next(times))
    assert matmul_flops_per_s(CPU, "fp32", seconds=0.8) == 2 * 10**3 / 0.125
    assert next(times, None) is None


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_measured_peak_multiplies_in_the_precision_of_training(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(MATRIX_SIZE, "cpu", 64)
    products = []

    def timed(work: object, device: torch.device) -> float:
        products.append(work())  # type: ignore[operator]
        return 1.0

    monkeypatch.setattr(timing, "timed", timed)
    matmul_flops_per_s(CPU, precision, seconds=0.01)
    assert products[0].shape == (64, 64)
    assert products[0].dtype == dtype


def test_the_measured_peak_of_this_machine_is_plausible():
    """No core does less than 0.1 GFLOP/s in an optimised product, and none more than 10 PFLOP/s."""
    assert 1e8 < matmul_flops_per_s(CPU, "fp32", seconds=0.05) < 1e16


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA B200", 2250, 75),
        ("NVIDIA GH200 480GB", 989, 67),
        ("NVIDIA H200", 989, 67),
        ("NVIDIA H200 NVL", 835.5, 60),
        ("NVIDIA H100 80GB HBM3", 989, 67),
        ("NVIDIA H100 PCIe", 756, 51),
        ("NVIDIA H100 NVL", 835.5, 60),
        ("NVIDIA A100-SXM4-80GB", 312, 19.5),
        ("NVIDIA A100 80GB PCIe", 312, 19.5),
        ("NVIDIA L40S", 362, 91.6),
        ("NVIDIA L4", 121, 30.3),
        ("NVIDIA A10G", 70, 35),
        ("NVIDIA A10", 125, 31.2),
        ("NVIDIA GeForce RTX 4090", 165, 82.6),
    ],
)
def test_a_card_is_known_by_its_whole_name(name: str, bf16: float, fp32: float):
    assert peak_flops(name, "bf16") == bf16 * 1e12
    assert peak_flops(name, "fp32") == fp32 * 1e12
    assert peak_flops(name, "fp16") is None
    assert len(PEAK_TFLOPS) == 13


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA A100X",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Tesla V100-SXM2-16GB",
        "AMD EPYC 9B14",
        "",
    ],
)
def test_slices_of_cards_and_unknown_devices_have_no_peak(name: str):
    assert peak_flops(name, "bf16") is None
