"""How the process holds on to memory. Knows nothing of what it is used for.

A batch of records on its way to the control API is up to a megabyte, for a moment. glibc takes the
first such buffer from the system and gives it back, and then raises the size from which it does so:
all later ones leave holes in the heap that stay resident. Fixed, the size stays where it was.
"""

import ctypes
import gc

_M_MMAP_THRESHOLD = -3  # malloc.h
_THRESHOLD = 128 * 1024  # glibc's own first value


def give_back_large_buffers() -> None:
    """Where the C library has such a setting; to be called before there is more than one thread."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def settle() -> None:
    """What was made until now stays: the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
