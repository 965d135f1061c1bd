"""Room on the stack for fused chains of any length, in which each step calls the next one."""

import contextlib
import sys
import threading
from collections.abc import Iterator

_FRAMES = 20
"""Frames of Python for each step: five to pass elements on, four to build the steps; and some for
further kinds of steps."""
_STACK_BYTES = 64 << 10
"""Stack for each step, of which most is never touched."""
_FOR_USER_CODE = 1000
"""Further frames, Python's default."""
_MAX_BY_DEFAULT = 40
"""So many steps run within Python's default limit."""
_DEFAULT_STACK_BYTES = 8 << 20
_STARTING = threading.Lock()


@contextlib.contextmanager
def room_for(steps: int) -> Iterator[None]:
    """Have threads that are started within the context be able to run a chain of steps.

    Python's limit of recursion is that of the process. It is raised only as far as the chain
    needs, so that endless recursion in user code is still an error.

    Args:
        steps: The number of steps, which need not all be in one chain.
    """
    if steps <= _MAX_BY_DEFAULT:
        yield
        return
    with _STARTING:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _FOR_USER_CODE + _FRAMES * steps))
        previous_bytes = threading.stack_size(max(_DEFAULT_STACK_BYTES, _STACK_BYTES * steps))
        try:
            yield
        finally:
            threading.stack_size(previous_bytes)
