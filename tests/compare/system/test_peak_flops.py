"""The measured peak: best of some products, in the precision asked for."""

from collections.abc import Iterator

import pytest
import torch

from compare.system import peak_flops
from compare.system.peak_flops import matmul_flops_per_s

CPU = torch.device("cpu")


def test_the_measured_peak_is_the_best_of_some_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(peak_flops.MATRIX_SIZE, "cpu", 10)
    times: Iterator[float] = iter([0.5, 0.125, 0.25])
    now = iter([0.0, 0.0, 1.0, 2.0, 9.0])  # the last one is past the end
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(peak_flops, "timed", lambda work, device: next(times))
    assert matmul_flops_per_s(CPU, "fp32", seconds=3.0) == 2 * 10**3 / 0.125


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_measured_peak_multiplies_in_the_precision_of_training(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(peak_flops.MATRIX_SIZE, "cpu", 64)
    products = []

    def timed(work: object, device: torch.device) -> float:
        products.append(work())  # type: ignore[operator]
        return 1.0

    monkeypatch.setattr(peak_flops, "timed", timed)
    matmul_flops_per_s(CPU, precision, seconds=0.01)
    assert products[0].shape == (64, 64)
    assert products[0].dtype == dtype


def test_the_measured_peak_of_this_machine_is_plausible():
    """No core does less than 0.1 GFLOP/s in an optimised product, and none more than 10 PFLOP/s."""
    assert 1e8 < matmul_flops_per_s(CPU, "fp32", seconds=0.05) < 1e16
