"""Residuals of splittable DoFns, stored as records of a shard for later epochs.

As in ``residuals``, a residual is one timer and one value, both with the same id in the namespace
of its window. The id takes the place of the transform id of user state, so that each residual of
an element has its own records.
"""

import math
import struct
import threading
from collections.abc import Callable, Iterator

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import END_OF_GLOBAL_WINDOW_US, MAX_US, MIN_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer, pages
from beam_spark_runner.state.residuals import ResidualTimer
from beam_spark_runner.state.store import StoredState

_STATE = "residual"
_TRUNCATED = "truncated"  # the beginning of timer tags of truncated restrictions
_SIZE = struct.Struct(">d")  # the end of an encoded element: a sized restriction is KV<…, double>
_MAX_SIZED = 100


class StoredTimers:
    """See ``KeyedTimers``.

    Args:
        store: The state and timers of the stage.
        now_us: Returns the processing time, microseconds since the Unix epoch.
        drains: Whether the pipeline is drained. Then restrictions that have not been truncated
            are due at any time.

    Attributes:
        truncated: Whether timers that are set from now on are those of truncated restrictions.
        slice_us: ``ResidualTimer.slice_us`` of timers that are set from now on.
    """

    def __init__(
        self, store: StoredState, now_us: Callable[[], int], *, drains: bool = False
    ) -> None:
        self.truncated = False
        self.slice_us = 0
        self.lock = threading.Lock()
        self._drains = drains
        self._store = store
        self._now_us = now_us
        self._key = b""

    def processing_time_us(self) -> int:
        return self._now_us()

    def set_current_key(self, key: bytes) -> None:
        self._key = key

    def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None:
        # The watermark must not pass the global window before the residual is processed. A window
        # that ends earlier is passed if the watermark estimator says so.
        hold_us = min(hold_us, END_OF_GLOBAL_WINDOW_US)
        tag = _TRUNCATED if self.truncated else ""
        if self.slice_us:
            tag += f"/{self.slice_us}"
        timer = StoredTimer("", tag, window, Domain.PROCESSING_TIME, fire_at_us, hold_us, b"")
        others = self._store.timers(id_, self._key)  # of the same element in other windows
        self._store.set_timers(id_, self._key, [*others, timer])

    def due(self) -> Iterator[ResidualTimer]:
        """Yield the timers that are due, the earliest first. They remain until removed."""
        now_us = self._now_us()
        for id_, key in self._store.due(MIN_US, MAX_US if self._drains else now_us):
            for timer in self._store.timers(id_, key):
                state, _, slice_us = timer.tag.partition("/")
                was_truncated = state == _TRUNCATED
                if timer.fires_us <= now_us or (self._drains and not was_truncated):
                    yield ResidualTimer(
                        timer.fires_us,
                        key,
                        timer.window,
                        id_,
                        timer.hold_us,
                        was_truncated,
                        int(slice_us or 0),
                    )

    def remove(self, timer: ResidualTimer) -> None:
        """Remove a timer and its hold."""
        timers = [
            other
            for other in self._store.timers(timer.id, timer.key)
            if other.window != timer.window
        ]
        self._store.set_timers(timer.id, timer.key, timers)


class StoredKeyedValues:
    """See ``KeyedValues``.

    Args:
        store: The state of the stage.
        coder: The coder of the values.
    """

    def __init__(self, store: StateBackend, coder: WindowedValueCoder) -> None:
        self.lock = threading.Lock()
        self._store = store
        self._encode = coder.get_impl().encode
        self._decode = coder.get_impl().decode
        self._key = b""

    def set_current_key(self, key: bytes) -> None:
        self._key = key

    def write(self, window: bytes, id_: str, value: WindowedValue) -> None:
        self._store.append(self._bag(window, id_), self._encode(value))

    def read(self, window: bytes, id_: str) -> WindowedValue:
        return self._decode(b"".join(pages(self._store, self._bag(window, id_))))

    def clear(self, window: bytes, id_: str) -> None:
        self._store.clear(self._bag(window, id_))

    def _bag(self, window: bytes, id_: str) -> Bag:
        return Bag(Cell(id_, _STATE, window, self._key))


def total_size(store: StoredState) -> float | None:
    """Return the total size of the stored restrictions, as their provider computed it.

    None: there are too many to read them in each epoch, or a size is not finite.

    Args:
        store: The state and timers of the stage.
    """
    if store.count_holders() > _MAX_SIZED:
        return None
    total = 0.0
    for id_, key, timers in store.all_timers():
        for timer in timers:
            coded = b"".join(pages(store, Bag(Cell(id_, _STATE, timer.window, key))))
            total += float(_SIZE.unpack(coded[-_SIZE.size :])[0])
    return total if math.isfinite(total) else None
