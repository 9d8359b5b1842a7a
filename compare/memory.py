"""Let the C library keep the memory that tensors free: asking the system for it anew costs page faults."""

import ctypes
import platform
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""


def keep_freed_memory() -> None:
    """Never give freed memory back before the end of the process; does nothing without glibc.

    By default every tensor over 32 MB is mapped and unmapped, zeroed pages and all, at each update.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
