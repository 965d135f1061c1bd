"""The time of a bundle, for DoFns of this package; Beam has no parameter for it."""

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from beam_spark_runner.core.time import MAX_US


class Timing(NamedTuple):
    """When a bundle's elements arrive.

    Attributes:
        watermark_us: of the input of a keyed stage, before the elements arrived; of another stage
            the beginning of time.
        arriving_us: the same once they have arrived; of another stage the end of time.
        clock_us: processing time, microseconds since the Unix epoch; None: the wall clock's.
    """

    watermark_us: int
    arriving_us: int
    clock_us: int | None

    @property
    def has_ended(self) -> bool:
        """Whether no further bundle gets elements."""
        return self.arriving_us == MAX_US


_bundle = threading.local()


@contextlib.contextmanager
def timed_by(timing: Timing) -> Iterator[None]:
    """Let ``start_bundle`` of the DoFns that start inside, in this thread, see the time."""
    _bundle.timing = timing
    try:
        yield
    finally:
        del _bundle.timing


def timing_of_bundle() -> Timing | None:
    """Return the time of the bundle that starts; None: in an SDK harness of its own."""
    return getattr(_bundle, "timing", None)
