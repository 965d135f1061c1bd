"""Elements that wait in the shard until the side inputs of their step are ready."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import Chunks
from beam_spark_runner.semantics.lateness import LateElements, waiting_hold_us
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer, pages

WAITING = "waiting"
"""Takes the place of a transform id in the store; no step of the stage has this id."""
_NO_KEY = b""

Push = Callable[[list[Any], list[WindowedValue]], None]


class WaitingElements:
    """Passes on elements whose side inputs are ready, and stores the others.

    The elements of one window are a bag in the store. A timer that never fires holds the watermark
    at the least of their timestamps, but at most at the end of the window.

    Args:
        store: The stage's records in the shard.
        coder: The coder of the elements.
        are_ready: Whether the side inputs are ready, for some windows of the main input. The
            answers are the same for the whole epoch.
        is_expired: Whether a window of the main input has expired, so that its side inputs may
            have been deleted: new elements in it are dropped as late.
        late: Counts the dropped elements.
    """

    def __init__(
        self,
        store: StateBackend,
        coder: WindowedValueCoder,
        *,
        are_ready: Callable[[Sequence[Any]], Sequence[bool]],
        is_expired: Callable[[Any], bool],
        late: LateElements,
    ) -> None:
        self._store = store
        self._are_ready = are_ready
        self._passing: list[WindowedValue] = []  # origins of the current chunk
        self._is_expired, self._late = is_expired, late
        self._encode = coder.get_impl().encode_nested
        self._decode_all = coder.get_impl().decode_all
        self._encode_window = coder.window_coder.encode
        self._decode_window = coder.window_coder.decode
        self._readiness: dict[Any, bool] = {}  # whether side inputs are ready, by window
        self._expiry: dict[Any, bool] = {}
        self._holds = {timer.window: timer.hold_us for timer in store.timers(WAITING, _NO_KEY)}
        self._stored_holds = dict(self._holds)

    def pass_on(self, push: Push, values: list[Any], origins: list[WindowedValue]) -> None:
        """Push elements that are ready. One in several windows is pushed in those that are."""
        self._passing = origins
        if all(self._passes(window) for origin in origins for window in origin.windows):
            push(values, origins)
            return
        ready_values: list[Any] = []
        ready_origins: list[WindowedValue] = []
        for value, origin in zip(values, origins, strict=True):
            for window in origin.windows:
                part = WindowedValue(value, origin.timestamp, (window,), origin.pane_info)
                if self._expired(window):
                    self._late.dropped += 1
                    continue
                if self._ready(window):
                    ready_values.append(value)
                    ready_origins.append(part)
                else:
                    self._wait(window, part)
        if ready_values:
            push(ready_values, ready_origins)

    def _passes(self, window: Any) -> bool:
        return self._ready(window) and not self._expired(window)

    def _expired(self, window: Any) -> bool:
        is_expired = self._expiry.get(window)
        if is_expired is None:
            is_expired = self._expiry[window] = self._is_expired(window)
        return is_expired

    def _ready(self, window: Any) -> bool:
        is_ready = self._readiness.get(window)
        if is_ready is None:
            self._learn([window, *(other for origin in self._passing for other in origin.windows)])
            is_ready = self._readiness[window]
        return is_ready

    def _learn(self, windows: Iterable[Any]) -> None:
        """Ask for all windows at once, since the answer may take a bundle in an SDK harness."""
        unknown = [window for window in dict.fromkeys(windows) if window not in self._readiness]
        if unknown:
            self._readiness.update(zip(unknown, self._are_ready(unknown), strict=True))

    def _wait(self, window: Any, element: WindowedValue) -> None:
        coded = self._encode_window(window)
        self._store.append(_bag(coded), self._encode(element))
        self._holds[coded] = min(self._holds.get(coded, MAX_US), waiting_hold_us(element))

    def ready_windows(self) -> Iterator[bytes]:
        """Yield the encoded windows that have stored elements and are ready now."""
        windows = {coded: self._decode_window(coded) for coded in self._holds}
        self._learn(windows.values())
        for coded, window in windows.items():
            if self._ready(window):
                yield coded

    def release(self, bundle: BundleInput) -> None:
        """Push the stored elements whose windows are ready now."""
        chunks = Chunks(bundle)
        for coded in self.ready_windows():
            for data in pages(self._store, _bag(coded)):
                for element in self._decode_all(data):
                    chunks.add(element.value, element, 0)
            self._store.clear(_bag(coded))
            del self._holds[coded]
        chunks.push()

    def earliest(self) -> tuple[Any, bytes, int] | None:
        """Return where the earliest stored element is: window, encoded window, and timestamp.

        The timestamp is in microseconds. None: no element is stored.
        """
        if not self._holds:
            return None
        coded, hold_us = min(self._holds.items(), key=lambda item: (item[1], item[0]))
        return self._decode_window(coded), coded, hold_us

    def save(self) -> bool:
        """Store the watermark holds of the stored elements.

        Returns:
            Whether any elements are stored.
        """
        if self._holds != self._stored_holds:
            self._stored_holds = dict(self._holds)
            timers = [
                StoredTimer("", "", window, Domain.EVENT_TIME, MAX_US, hold_us, b"")
                for window, hold_us in self._holds.items()
            ]
            self._store.set_timers(WAITING, _NO_KEY, timers)
        return bool(self._holds)


def copy_waiting(source: StateBackend, target: StateBackend) -> None:
    """Copy stored elements from an old shard to a new one.

    Args:
        source: The stage's records in the old shard.
        target: The stage's records in the new shard.
    """
    holds = {timer.window: timer for timer in target.timers(WAITING, _NO_KEY)}
    for timer in source.timers(WAITING, _NO_KEY):
        for data in pages(source, _bag(timer.window)):
            target.append(_bag(timer.window), data)
        other = holds.get(timer.window, timer)
        holds[timer.window] = min(timer, other, key=lambda candidate: candidate.hold_us)
    target.set_timers(WAITING, _NO_KEY, list(holds.values()))


def _bag(window: bytes) -> Bag:
    return Bag(Cell(WAITING, "elements", window, _NO_KEY))
