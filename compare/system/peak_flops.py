"""Peak FLOP/s of devices: by their data sheets, for MFU, and of a measured matrix product, for ``doctor``."""

import re

import torch

from compare.system.precision import DTYPES
from compare.system.timing import best_of

MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices multiplied, by device type: large enough to keep it busy."""
PEAK_TFLOPS: dict[str, dict[str, float]] = {
    r"B200": {"bf16": 2250, "fp32": 75},  # HGX B200: 4.5 PFLOP/s with sparsity; 75
    r"GH200 .*": {"bf16": 989, "fp32": 67},  # GH200 Grace Hopper Superchip: 1,979 with sparsity; 67
    r"H200": {"bf16": 989, "fp32": 67},  # H200 SXM: 1,979 with sparsity; 67
    r"H200 NVL": {"bf16": 835.5, "fp32": 60},  # H200 NVL: 1,671 with sparsity; 60
    r"H100 80GB HBM3": {"bf16": 989, "fp32": 67},  # H100 SXM: 1,979 with sparsity; 67
    r"H100 PCIe": {"bf16": 756, "fp32": 51},  # H100 PCIe: 1,513 with sparsity; 51
    r"H100 NVL": {"bf16": 835.5, "fp32": 60},  # H100 NVL: 1,671 with sparsity; 60
    r"A100[- ].*": {"bf16": 312, "fp32": 19.5},  # A100 40GB and 80GB, SXM and PCIe: 312; 19.5
    r"L40S": {"bf16": 362, "fp32": 91.6},  # L40S: 362.05; 91.6
    r"L4": {"bf16": 121, "fp32": 30.3},  # L4: 242 with sparsity; 30.3
    r"A10G": {"bf16": 70, "fp32": 35},  # A10G (made for AWS): 70; 35
    r"A10": {"bf16": 125, "fp32": 31.2},  # A10: 125; 31.2
    r"GeForce RTX 4090": {"bf16": 165, "fp32": 82.6},  # Ada whitepaper, fp32 accumulation: 165.2; 82.6
}
"""Peaks without sparsity in NVIDIA's data sheets, by a pattern of the card's whole name after "NVIDIA".

bf16 is that of the tensor cores, fp32 that of the other cores, since torch keeps products of fp32 matrices
off the tensor cores. A slice of a card (MIG) has no data sheet.
"""


def peak_flops(name: str, precision: str) -> float | None:
    """Look up the peak that model FLOPs utilisation (MFU) is relative to.

    Args:
        name: the device's name, as by ``device_name``.
        precision: precision of training.

    Returns:
        FLOP/s; None for processors, slices of a card (MIG) and unknown cards, which have no MFU.
    """
    card = name.removeprefix("NVIDIA ")
    if " MIG " in card:
        return None
    for pattern, peaks in PEAK_TFLOPS.items():
        if re.fullmatch(pattern, card) and precision in peaks:
            return 1e12 * peaks[precision]
    return None


def matmul_flops_per_s(device: torch.device, precision: str, seconds: float = 0.3) -> float:
    """Measure the operations per second of a square matrix product: its fastest run within ``seconds``."""
    size = MATRIX_SIZE[device.type]
    dtype = DTYPES[precision]
    left, right = (
        torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device, dtype) for _ in "ab"
    )
    return float(2 * size**3 / best_of(lambda: left @ right, device, seconds=seconds))
