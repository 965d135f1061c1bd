"""The watermark and processing time of a bundle, for DoFns of this package."""

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from beam_spark_runner.core.time import MAX_US


class Timing(NamedTuple):
    """The time at which a bundle's elements arrive; Beam's DoFns have no parameter for it.

    Attributes:
        watermark_us: The input watermark of a keyed stage before the elements arrived; the
            minimum for other stages.
        arriving_us: The input watermark after they have arrived; the maximum for other stages.
        clock_us: Processing time, in microseconds since the Unix epoch; None: the wall clock's.
    """

    watermark_us: int
    arriving_us: int
    clock_us: int | None

    @property
    def has_ended(self) -> bool:
        """Whether the input has ended, so that no further bundle gets elements."""
        return self.arriving_us == MAX_US


_bundle = threading.local()


@contextlib.contextmanager
def timed_by(timing: Timing) -> Iterator[None]:
    """Set the time that ``timing_of_bundle`` returns in this thread, within a context."""
    _bundle.timing = timing
    try:
        yield
    finally:
        del _bundle.timing


def timing_of_bundle() -> Timing | None:
    """Return the time of the starting bundle, for ``start_bundle``; None in a remote harness."""
    return getattr(_bundle, "timing", None)
