"""Linear layers whose weights are stored in the layout of oneDNN's kernels, for decoding on a CPU.

At every product oneDNN copies the weights into blocks as its kernel reads them. With the few rows of a
decoding step this copy is a tenth to a quarter of the product. torch has operators that copy once and then
multiply by the copy, which torch.compile calls. They are not public: where they are missing or disagree with
``torch.nn.functional.linear``, layers stay as they are.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest difference between both products of the trial, whose results are about 1, by dtype."""


class PackedLinear(nn.Linear):
    """y = W x + b with a second copy of W, in oneDNN's layout, made of the first when the layer is created.

    The first copy serves gradients and whoever reads ``weight``. Changes of it do not reach the second.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Take over the parameters of a layer."""
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.train(layer.training)
        self.packed = _pack(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        if torch.is_grad_enabled() or x.dtype is not self.weight.dtype:
            return super().forward(x)
        return _multiply(x, self.packed, self.bias)


def pack_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers inside ``model``, in place, where this computes the same; else do nothing."""
    packed: dict[nn.Module, PackedLinear] = {}  # a layer may belong to several modules
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear and _is_packable(layer.weight):
                packed[layer] = packed.get(layer) or PackedLinear(layer)
                setattr(module, name, packed[layer])


def _is_packable(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype in TOLERANCE and _agrees(weight.dtype)


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
