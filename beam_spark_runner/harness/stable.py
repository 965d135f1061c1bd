"""Stable input: elements are stored on arrival, and processed once they are committed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.core.varint import coded_varint, read_varint
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import Chunks
from beam_spark_runner.semantics.lateness import (
    IsExpired,
    LateElements,
    drop_expired,
    waiting_hold_us,
)
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer, pages
from beam_spark_runner.state.store_keys import HASH_BYTES, hash_of

STABLE = "stable"
"""Takes the place of a transform id in the store; no step of the stage has this id."""
_NOBODY = b""  # stands for the key and the window of the stored elements
_BAG = Bag(Cell(STABLE, "elements", _NOBODY, _NOBODY))
_PIECE_BYTES = 1 << 20
_KEYS_AHEAD, _BYTES_AHEAD = 1_000, 4 << 20  # of elements whose keys are loaded together
_ENDS_KEY, _HAS_HASH = 1, 2  # flags of a piece, its first byte


class StableElements:
    """The input of a stage with ``@RequiresStableInput``. A ``BundleInput``.

    Elements are stored in the order of arrival, with a watermark hold at the least of their
    timestamps and ends of windows. A later epoch gets them in the same order, however often it
    runs. In a keyed stage, the elements of one key are consecutive, and the bundle's
    ``advance_key`` follows each key.

    Args:
        store: The stage's records in the shard.
        coder: The coder of the input's elements.
        is_expired: Whether a window of the input has expired: new elements in it are dropped.
            Elements that are stored are not.
        late: Counts the dropped elements.
        is_keyed: Whether elements are KVs that arrive key by key.
    """

    def __init__(
        self,
        store: StateBackend,
        coder: WindowedValueCoder,
        *,
        is_expired: IsExpired,
        late: LateElements,
        is_keyed: bool,
    ) -> None:
        self._store = store
        self._is_expired, self._late = is_expired, late
        self._encode = coder.get_impl().encode_nested
        self._decode_all = coder.get_impl().decode_all
        self._encode_key: Callable[[Any], bytes] | None = None
        if is_keyed:
            self._encode_key = coder.wrapped_value_coder.key_coder().get_impl().encode_nested
        self._hash: bytes = b""  # of the current key; empty: not known yet
        self._piece: list[bytes] = []
        self._size = 0
        self._in_key = False  # whether elements have arrived since the last key ended
        self._least_us: int | None = None  # the least hold of what arrived in this epoch

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Store elements for the next epoch."""
        values, origins = drop_expired(values, origins, self._is_expired, self._late)
        if values and self._encode_key is not None and not self._hash:
            self._hash = hash_of(self._encode_key(values[0][0])).to_bytes(HASH_BYTES, "big")
        for value, origin in zip(values, origins, strict=True):
            coded = self._encode(origin.with_value(value))
            self._piece.append(coded)
            self._size += len(coded)
            if self._size >= _PIECE_BYTES:
                self._write(ends_key=False)
        if values:
            self._in_key = True
            least_us = min(map(waiting_hold_us, origins))
            self._least_us = least_us if self._least_us is None else min(least_us, self._least_us)

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: the end of the key is stored for a later epoch."""
        if self._in_key:
            self._write(ends_key=True)
            self._in_key, self._hash = False, b""

    def flush(self) -> None:
        """See ``BundleInput.flush``: stored elements wait for a later epoch."""

    def _write(self, *, ends_key: bool) -> None:
        coded = b"".join(self._piece)
        flags = (_ENDS_KEY if ends_key else 0) | (_HAS_HASH if self._hash else 0)
        header = bytes([flags]) + self._hash + coded_varint(len(coded))
        self._store.append(_BAG, header + coded)
        self._piece, self._size = [], 0

    def release(
        self, bundle: BundleInput, ask: Callable[[Iterable[bytes]], None] | None = None
    ) -> None:
        """Push the elements that an earlier epoch has stored, before this epoch stores any.

        Args:
            bundle: Takes them.
            ask: Loads what the next keys have stored, see ``StoredState.ask``. None: they are not
                loaded before they are needed.
        """
        chunks = Chunks(bundle)
        for some in _read_ahead(_pieces(self._store), 1 if ask is None else _KEYS_AHEAD):
            if ask is not None and self._encode_key is not None:
                firsts = (next(iter(self._decode_all(each.elements)), None) for each in some)
                ask([self._encode_key(each.value[0]) for each in firsts if each is not None])
            for piece in some:
                for element in self._decode_all(piece.elements):
                    chunks.add(element.value, element, 0)
                chunks.push()
                if piece.ends_key:
                    bundle.advance_key()
        self._store.clear(_BAG)
        self._store.set_timers(STABLE, _NOBODY, ())

    def save(self) -> bool:
        """Write buffered elements, and the watermark hold of all elements of this epoch.

        Returns:
            Whether anything is stored for the next epoch.
        """
        if self._piece:
            self._write(ends_key=False)
        if self._least_us is None:
            return False
        _hold(self._store, min(self._least_us, MAX_US))
        return True


class _Piece(NamedTuple):
    """A stored record of several elements, of one key if they have keys.

    Attributes:
        coded: The whole record, with its header.
        elements: The elements, encoded one after the other.
        hashed: The hash of the elements' key; None: they have no key.
        ends_key: Whether the key ends with this piece.
    """

    coded: bytes
    elements: bytes
    hashed: int | None
    ends_key: bool


def _read_ahead(pieces: Iterator[_Piece], count: int) -> Iterator[list[_Piece]]:
    """Divide pieces into lists of at most so many, and of some megabytes."""
    some: list[_Piece] = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece.coded)
        if len(some) == count or size >= _BYTES_AHEAD:
            yield some
            some, size = [], 0
    if some:
        yield some


def _pieces(store: StateBackend) -> Iterator[_Piece]:
    for data in pages(store, _BAG):
        position = 0
        while position < len(data):
            flags, start, hashed = data[position], position + 1, None
            if flags & _HAS_HASH:
                hashed = int.from_bytes(data[start : start + HASH_BYTES], "big")
                start += HASH_BYTES
            length, start = read_varint(data, start)
            coded, position = data[position : start + length], start + length
            yield _Piece(coded, data[start:position], hashed, bool(flags & _ENDS_KEY))


def _hold(store: StateBackend, least_us: int) -> None:
    # The timer is always due, so that the stage runs in the next epoch.
    timer = StoredTimer("", "", _NOBODY, Domain.EVENT_TIME, MIN_US, least_us, b"")
    store.set_timers(STABLE, _NOBODY, (timer,))


def copy_stable(
    source: StateBackend, target: StateBackend, goes: Callable[[int | None], bool]
) -> None:
    """Copy stored elements from an old shard to a new one, in their order.

    Args:
        source: The stage's records in the old shard.
        target: The stage's records in the new shard.
        goes: Whether elements belong to the new shard, by the hash of their key, which is None
            for elements without keys.
    """
    copied = False
    for piece in _pieces(source):
        if goes(piece.hashed):
            target.append(_BAG, piece.coded)
            copied = True
    if copied:
        timers = [*source.timers(STABLE, _NOBODY), *target.timers(STABLE, _NOBODY)]
        _hold(target, min(timer.hold_us for timer in timers))
