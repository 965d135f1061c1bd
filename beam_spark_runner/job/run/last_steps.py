"""The steps at the end of a job, all of which are taken, whichever of them fail."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def running_at_end(steps: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Take steps in their order when the block ends, however it does. Exceptions are logged."""
    with contextlib.ExitStack() as at_end:
        for step in reversed(steps):  # the stack begins with what was added last
            at_end.callback(_run_step, step)
        yield


def _run_step(step: Callable[[], None]) -> None:
    try:
        step()
    except Exception:
        _LOGGER.exception("a step at the end of the job failed")
