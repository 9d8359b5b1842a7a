"""Whether torch records operations to repeat them later: the host must then read no values of tensors."""

import torch


def is_traced() -> bool:
    """Return whether torch.compile or torch.export is tracing the model."""
    return torch.compiler.is_compiling() or torch.compiler.is_exporting()


def is_recorded(device: torch.device) -> bool:
    """Return whether the model is traced, or its kernels on ``device`` are captured in a CUDA graph."""
    return is_traced() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
