"""Linear layers whose weights are stored in the layout of oneDNN's kernels, for decoding on a CPU.

At every product oneDNN copies the weights into blocks as its kernel reads them. With the few rows of a
decoding step this copy takes as long as the product itself. torch has operators that copy once and then
multiply by the copy, which torch.compile calls. They are not public: where they are missing or disagree with
``torch.nn.functional.linear``, layers stay as they are. In fp32 they also do unless ``tune_cpu`` has sent
products to oneDNN: not in a process that did not call it, nor on processors of Intel with AMX.
"""

from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from compare.system.cpu import sends_fp32_to_onednn

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest difference between both products of the trial, whose results are about 1, by dtype."""
MIN_MULTIPLY_ADDS = 2**20
"""Size of the smallest packed product: calling torch's operator costs more than it saves below."""


class PackedLinear(nn.Linear):
    """y = W x + b with a second copy of W, in oneDNN's layout, made of the first when it is first used.

    The first copy serves gradients, single rows, and whoever reads ``weight``. Later changes of it do not
    reach the second.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Take over the parameters of a layer."""
        self.__dict__.update(vars(layer), _parameters=layer._parameters.copy())  # far faster than to create
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        if torch.is_grad_enabled() or x.dtype is not self.weight.dtype or not self._is_faster(x):
            return super().forward(x)
        if self.packed is None:
            self.packed = _pack(self.weight)
        return _multiply(x, self.packed, self.bias)

    def _is_faster(self, x: Tensor) -> bool:
        """Return whether the packed product takes less time; autocast multiplies in another dtype."""
        several_rows = x.numel() > self.in_features  # for a product with one vector nothing is copied
        is_large = x.numel() * self.out_features >= MIN_MULTIPLY_ADDS
        return several_rows and is_large and not torch.is_autocast_enabled(x.device.type)


def is_packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a ``PackedLinear`` computes the same as this module, and torch can pack its dtype.

    It does not in place of modules of subclasses, of hooks, such as those of weight normalisation and
    pruning, or of weights that are no plain tensors, such as quantised ones.
    """
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    weight = module.weight
    return (
        "forward" not in vars(module)
        and type(weight) is nn.Parameter
        and weight.is_contiguous()
        and weight.numel() > 0
        and weight.device.type == "cpu"
        and packs(weight.dtype)
    )


def packs(dtype: torch.dtype) -> bool:
    """Return whether linear layers with weights of a dtype are packed in this process."""
    by_onednn = dtype is torch.bfloat16 or (dtype is torch.float32 and sends_fp32_to_onednn())
    return by_onednn and _agrees(dtype)


@cache
def _agrees(dtype: torch.dtype) -> bool:
    """Test whether the operators exist and compute the product of ``linear``."""
    random = torch.Generator().manual_seed(0)
    shapes = (3, 2, 64), (96, 64), (96,)
    x, weight, bias = (torch.rand(*shape, generator=random).to(dtype) for shape in shapes)
    weight = weight / 64
    try:
        with torch.no_grad():
            difference = _multiply(x, _pack(weight), bias) - linear(x, weight, bias)
    except (AttributeError, RuntimeError):
        return False
    return bool(difference.abs().max() <= TOLERANCE[dtype])


def _pack(weight: Tensor) -> Tensor:
    operators: Any = torch.ops.mkldnn
    packed: Tensor = operators._reorder_linear_weight(weight.detach())
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Compute W x + b; the operator can also apply a function to it, here none."""
    operators: Any = torch.ops.mkldnn
    product: Tensor = operators._linear_pointwise(x, packed, bias, "none", [], "")
    return product
