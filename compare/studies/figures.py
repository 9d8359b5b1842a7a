"""Panels of labelled lines, and measurements, as all studies use them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter, MaxNLocator
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compare.report.plots import REFERENCE_LINE, series_style, tidy_axes

# Panels of labelled lines, as all studies draw them.


Points = tuple[Sequence[float], Sequence[float]]
"""x and y of a line."""
MAX_MARKED_POINTS = 30
"""A line of more points has no markers."""


def draw_lines(
    axes: Axes,
    lines: Mapping[str, Points],
    *,
    title: str,
    x: str,
    y: str,
    log: Literal["", "x", "y", "xy"] = "",
    predicted: Mapping[str, Points] | None = None,
) -> None:
    """Draw lines and a legend.

    Args:
        axes: where to draw.
        lines: measured points by label.
        title: of the panel.
        x: label of the x axis.
        y: label of the y axis.
        log: which axes are logarithmic.
        predicted: predicted points by label, drawn dashed.
    """
    for index, (label, points) in enumerate(lines.items()):
        style = series_style(index)
        if len(points[0]) > MAX_MARKED_POINTS:
            style["marker"] = ""
        axes.plot(*points, **style, label=label)
    for label, points in (predicted or {}).items():
        axes.plot(*points, **REFERENCE_LINE, label=label, zorder=1)
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if "y" in log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
        axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    tidy_axes(axes)
    axes.legend(fontsize=8, frameon=False)


# Measurements of the studies: operations, bytes, seconds and errors.


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products in ``work`` with torch's counter.

    Attention runs without fused kernels, since the counter misses those of a CPU.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2


def saved_bytes(work: Callable[[], object]) -> int:
    """Count the bytes of the tensors that ``work`` saves for its backward pass, each storage once."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # a reference keeps its address in use
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        result = work()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def relative_error(values: Tensor, expected: Tensor) -> float:
    """Compute the largest difference as a share of the largest expected value."""
    return float((values - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> Tensor:
    """Draw standard normal numbers in float64, where rounding errors are near 1e-16."""
    return torch.randn(*shape, dtype=torch.float64)
