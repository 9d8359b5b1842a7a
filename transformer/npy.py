"""Reader of arrays in NumPy's .npy format, without NumPy: the models need nothing but torch.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import ast
import math
from pathlib import Path

import torch
from torch import Tensor

MAGIC = b"\x93NUMPY"
DTYPES = {
    "|b1": torch.bool,
    "|i1": torch.int8,
    "|u1": torch.uint8,
    "<i2": torch.int16,
    "<i4": torch.int32,
    "<i8": torch.int64,
    "<f2": torch.float16,
    "<f4": torch.float32,
    "<f8": torch.float64,
}
"""Types that are read, by NumPy's name: little-endian numbers and bool."""


def read_npy(path: str) -> Tensor:
    """Read an array.

    Args:
        path: the file.

    Raises:
        ValueError: no .npy file, a truncated one, or one of a type that is no little-endian number or bool.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    if not content.startswith(MAGIC) or len(content) < 12:
        raise ValueError(f"{path} is not a .npy file: it does not begin as one")
    size = 2 if content[6] == 1 else 4  # bytes of the length of the header, by version of the format
    start = 8 + size + int.from_bytes(content[8 : 8 + size], "little")
    try:
        header = ast.literal_eval(content[8 + size : start].decode("latin-1").strip())
        kind, shape, is_reversed = header["descr"], tuple(header["shape"]), header["fortran_order"]
        count = math.prod(shape)
    except (SyntaxError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a .npy file: its header cannot be read") from None
    if kind not in DTYPES:
        raise ValueError(f"{path} holds values of type {kind!r}, not numbers: save it as bool or int8")
    dtype = DTYPES[kind]
    if len(content) - start != count * dtype.itemsize:
        raise ValueError(f"{path} is truncated: {len(content) - start} bytes of {count * dtype.itemsize}")
    if not count:
        return torch.empty(shape, dtype=dtype)
    values = torch.frombuffer(bytearray(content[start:]), dtype=dtype)
    return (
        values.view(shape[::-1]).permute(*reversed(range(len(shape)))) if is_reversed else values.view(shape)
    )
