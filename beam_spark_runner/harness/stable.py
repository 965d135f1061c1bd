"""Input that is stored when it comes, and processed once that is committed."""

from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.core.varint import coded_varint, read_varint
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import Chunks
from beam_spark_runner.semantics.lateness import IsOver, LateElements, in_time
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer

STABLE = "stable"
"""Stands for the transform in addresses of the store: not the id of a step of the stage's."""
_NOBODY = b""  # key and window of what is stored
_BAG = Bag(Cell(STABLE, "elements", _NOBODY, _NOBODY))
_PIECE_BYTES = 1 << 20


class StableElements:
    """The input of a stage that asks for stable input, between two epochs. A ``BundleInput``.

    What comes is stored, in its order, and holds the least of its timestamps. A later epoch gets
    it in the same order, however often it runs. Where the stage is keyed, the elements of one key
    stand in one run, and the bundle is told of its end.

    Args:
        store: of the stage.
        coder: of the elements.
        is_expired: whether a window of the input is over: elements in it come too late. Those
            that are stored do not.
        late: counts those that are dropped.
    """

    def __init__(
        self,
        store: StateBackend,
        coder: WindowedValueCoder,
        *,
        is_expired: IsOver,
        late: LateElements,
    ) -> None:
        self._store = store
        self._is_expired, self._late = is_expired, late
        self._encode = coder.get_impl().encode_nested
        self._decode_all = coder.get_impl().decode_all
        self._piece: list[bytes] = []
        self._size = 0
        self._in_key = False  # elements have come since the last key ended
        self._least_us: int | None = None  # of the timestamps that came in this epoch

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Store elements for the next epoch."""
        values, origins = in_time(values, origins, self._is_expired, self._late)
        for value, origin in zip(values, origins, strict=True):
            coded = self._encode(origin.with_value(value))
            self._piece.append(coded)
            self._size += len(coded)
            if self._size >= _PIECE_BYTES:
                self._write(ends_key=False)
        if values:
            self._in_key = True
            least_us = min(origin.timestamp_micros for origin in origins)
            self._least_us = least_us if self._least_us is None else min(least_us, self._least_us)

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: the key ends, in the epoch that processes it."""
        if self._in_key:
            self._write(ends_key=True)
            self._in_key = False

    def flush(self) -> None:
        """See ``BundleInput.flush``: what is stored waits."""

    def _write(self, *, ends_key: bool) -> None:
        coded = b"".join(self._piece)
        self._store.append(_BAG, bytes([ends_key]) + coded_varint(len(coded)) + coded)
        self._piece, self._size = [], 0

    def release(self, bundle: BundleInput) -> None:
        """Push what an earlier epoch has stored. Before anything comes in this one."""
        chunks = Chunks(bundle)
        token, has_more = b"", True
        while has_more:
            page = self._store.get(_BAG, token)
            position = 0
            while position < len(page.data):
                ends_key = bool(page.data[position])
                length, start = read_varint(page.data, position + 1)
                position = start + length
                for element in self._decode_all(page.data[start:position]):
                    chunks.add(element.value, element, 0)
                chunks.push()
                if ends_key:
                    bundle.advance_key()
            token = page.token
            has_more = bool(token)
        self._store.clear(_BAG)
        self._store.set_timers(STABLE, _NOBODY, ())

    def save(self) -> bool:
        """Write the rest, and what it holds.

        Returns:
            Whether anything is stored for the next epoch.
        """
        if self._piece:
            self._write(ends_key=False)
        if self._least_us is None:
            return False
        # Due at any time: so the stage runs in the next epoch.
        timer = StoredTimer(
            "", "", _NOBODY, Domain.EVENT_TIME, MIN_US, min(self._least_us, MAX_US), b""
        )
        self._store.set_timers(STABLE, _NOBODY, (timer,))
        return True
