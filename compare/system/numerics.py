"""How exactly a GPU computes: fp32 without rounding of inputs, and the same bits each time if asked for."""

import os

import torch


def set_numerics(device: torch.device, *, deterministic: bool = False) -> None:
    """Set how torch computes on ``device``, before the first work there; nothing to set for a processor.

    Products of fp32 stay fp32: torch keeps TensorFloat-32, which rounds inputs to 10 bits, from matrix
    products, but not from recurrent layers, so that some models of a comparison would be less exact.

    Args:
        device: where the models will compute.
        deterministic: choose algorithms that give the same bits each time, which are slower; an operation
            that has none raises a RuntimeError.
    """
    if device.type == "cpu":
        return
    torch.backends.cudnn.allow_tf32 = False
    if deterministic:
        # Read at the first product of the process. Of the two values that torch accepts, this is the one
        # that cuDNN's recurrent layers need too.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic
