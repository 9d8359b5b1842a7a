"""Peak FLOP/s of a device, to which the FLOP/s that a model reaches in training are compared."""

import re

import torch

from compare.system.device import device_name
from compare.system.precision import DTYPES
from compare.system.timing import best_of

MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices multiplied, by device type: large enough to keep it busy."""
PEAK_TFLOPS = {
    r"A100\b.*": 312,
    r"H100 80GB HBM3": 989,
    r"H100 PCIe": 756,
    r"H200": 989,
    r"L4": 121,
    r"A10": 125,
    r"GeForce RTX 4090": 165,
}
"""Dense bf16 peaks of the makers' data sheets, by a pattern of the card's whole name after "NVIDIA"."""
FORMULA = "FLOPs of training a token (3 times the forward pass' matrix products) x tokens/s over"


def peak_flops(device: torch.device, precision: str) -> tuple[float, str]:
    """Look up or measure the peak of ``device``.

    Returns:
        Operations per second, and a description of what they are.
    """
    peak = peak_tflops(device_name(device)) if device.type == "cuda" else None
    if peak is not None:
        return peak * 1e12, f"MFU: {FORMULA} the card's peak, {peak:,.0f} TFLOP/s of dense bf16"
    rate, size = matmul_flops_per_s(device, precision, seconds=2), MATRIX_SIZE[device.type]
    measured = f"{rate / 1e9:,.0f} GFLOP/s, measured in a {size} x {size} {precision} matrix product"
    return rate, f"{FORMULA} {measured}"


def peak_tflops(name: str) -> float | None:
    """Look up a card's dense bf16 peak in TFLOP/s; None for an unknown card."""
    card = name.removeprefix("NVIDIA ")
    return next((peak for pattern, peak in PEAK_TFLOPS.items() if re.fullmatch(pattern, card)), None)


def matmul_flops_per_s(device: torch.device, precision: str, seconds: float = 0.3) -> float:
    """Measure the operations per second of a square matrix product: its fastest run within ``seconds``."""
    size = MATRIX_SIZE[device.type]
    dtype = DTYPES[precision]
    left, right = (
        torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device, dtype) for _ in "ab"
    )
    return float(2 * size**3 / best_of(lambda: left @ right, device, seconds=seconds))
