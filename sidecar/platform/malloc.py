"""Tunes the memory management of this process."""

import ctypes
import gc

_M_MMAP_THRESHOLD = -3  # malloc.h
_THRESHOLD = 128 * 1024  # glibc's own initial value


def return_large_buffers() -> None:
    """Make malloc return large buffers to the system, if the C library allows that to be set. Call
    this before a second thread starts."""
    # A batch of records for the control API takes up to a megabyte for a moment. glibc takes the
    # first such buffer directly from the system and returns it. Then it raises the size from which
    # it does so, and all later buffers leave holes in the heap that stay resident. Setting the size
    # explicitly stops it from being raised (mallopt(3)).
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


GC_THRESHOLD = 20_000
"""The number of objects, allocated minus freed, after which the garbage collector looks for
cycles."""


def freeze_startup_objects() -> None:
    """Exempt all objects allocated so far from garbage collection, and collect less often."""
    # These objects live as long as the process: each full collection would walk them for nothing.
    gc.collect()
    gc.freeze()
    # Nearly everything that a request allocates is freed by its reference count. By Python's own
    # threshold, 700 objects, every few requests would pay for a search for cycles among those that
    # are under way: a quarter of a proxied request's time.
    gc.set_threshold(GC_THRESHOLD)
