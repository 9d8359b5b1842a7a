"""The measured peak: the fastest of several products, in the requested precision."""

from collections.abc import Iterator

import pytest
import torch

from compare.system import peak_flops, timing
from compare.system.peak_flops import matmul_flops_per_s

CPU = torch.device("cpu")


def test_the_measured_peak_is_the_best_of_some_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(peak_flops.MATRIX_SIZE, "cpu", 10)
    times: Iterator[float] = iter([0.5, 0.125, 0.25])  # 0.875 s together
    monkeypatch.setattr(timing, "timed", lambda work, device: next(times))
    assert matmul_flops_per_s(CPU, "fp32", seconds=0.8) == 2 * 10**3 / 0.125
    assert next(times, None) is None


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_measured_peak_multiplies_in_the_precision_of_training(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(peak_flops.MATRIX_SIZE, "cpu", 64)
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
