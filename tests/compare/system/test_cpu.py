"""The processor's settings: what may be set, and that fp32 stays fp32."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from compare.system import cpu


@pytest.fixture(params=["cpu", "accelerator"])
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In place of torch's switches, which no test may leave changed; the older one is for a CPU alone."""
    switch = SimpleNamespace(fp32_precision="none")
    backend = SimpleNamespace(is_available=lambda: True, matmul=switch)
    monkeypatch.setattr(torch.backends, "mkldnn", backend)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: request.param == "accelerator")

    def set_all(precision: str) -> None:
        assert request.param == "cpu"
        switch.fp32_precision = {"medium": "bf16", "highest": "none"}[precision]

    monkeypatch.setattr(torch, "set_float32_matmul_precision", set_all)
    return switch


def test_memory_is_kept_only_where_there_is_glibc(monkeypatch: pytest.MonkeyPatch):
    """Elsewhere the call does nothing; it must not look for mallopt either."""
    monkeypatch.setattr(cpu.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(cpu.ctypes, "CDLL", lambda _: pytest.fail("no glibc, no mallopt"))
    cpu._keep_freed_memory()


@pytest.mark.parametrize(("dtype", "kept"), [(torch.float32, True), (torch.bfloat16, False)])
def test_products_go_to_onednn_only_where_it_computes_them_in_fp32(
    dtype: torch.dtype, kept: bool, setting: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    multiply = torch.Tensor.__matmul__

    def as_the_processor_would(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if setting.fp32_precision == "none" or left.dtype == torch.float64:
            return multiply(left, right)
        return multiply(left.to(dtype), right.to(dtype)).float()

    monkeypatch.setattr(torch.Tensor, "__matmul__", as_the_processor_would)
    cpu._multiply_by_onednn()
    assert setting.fp32_precision == ("bf16" if kept else "none")


@pytest.mark.parametrize("chosen", ["ieee", "tf32"])
def test_the_users_own_choice_stays(chosen: str, setting: SimpleNamespace):
    setting.fp32_precision = chosen
    cpu._multiply_by_onednn()
    assert setting.fp32_precision == chosen


def test_nothing_is_set_where_torch_has_no_onednn(setting: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    cpu._multiply_by_onednn()
    assert setting.fp32_precision == "none"


def test_a_tuned_process_multiplies_in_fp32():
    """In a process of its own, with the real switch: as exact as fp32 for shapes of every kind."""
    code = """
import torch
from compare.system.cpu import FP32_ERROR, tune_cpu
tune_cpu()
if not torch.accelerator.is_available():
    torch.get_float32_matmul_precision()  # torch raises an error if its older and newer switch are mixed
for rows, inner, columns in [(1, 512, 2048), (64, 256, 777), (2048, 2048, 64), (333, 1000, 333)]:
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    exact = left.double() @ right.double()
    added = torch.addmm(torch.zeros(columns), left, right)
    for found in (left @ right, added, (left[None] @ right[None])[0]):
        assert (found - exact).abs().max() < FP32_ERROR * exact.abs().max()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("batch_tokens", "named", "kept"),
    [
        (4_096, {}, False),
        (1_024, {}, True),
        (4_096, {"LRU_CACHE_CAPACITY": "500"}, True),
        (None, {}, True),
    ],
)
def test_few_products_stay_compiled_for_large_batches_unless_the_user_wants_more(
    batch_tokens: int | None, named: dict[str, str], kept: bool
):
    """oneDNN's log shows that the first of 100 sizes is compiled again, and the last is not."""
    code = f"""
import torch
from compare.system.cpu import tune_cpu
tune_cpu(batch_tokens={batch_tokens})
def multiply(rows):
    print("size", rows, flush=True)
    torch.randn(1, rows, 64).bfloat16() @ torch.randn(1, 64, 96).bfloat16()
for rows in [*range(100, 200), 199, 100]:
    multiply(rows)
"""
    if named:
        named = {**named, "ONEDNN_PRIMITIVE_CACHE_CAPACITY": named["LRU_CACHE_CAPACITY"]}
    given = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**given, "ONEDNN_VERBOSE": "profile_create", **named},
        capture_output=True,
        text=True,
    )
    *_, before, last, first = done.stdout.split("size ")
    if "create:" not in done.stdout:
        pytest.skip("these products are not oneDNN's here")
    assert "cache_miss" in before
    assert "cache_miss" not in last
    assert ("cache_miss" in first) is not kept
