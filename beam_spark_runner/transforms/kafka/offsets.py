"""Restrictions of partitions: ranges of offsets, with or without an end."""

import itertools
from typing import NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from typing_extensions import override


class OffsetInterval(NamedTuple):
    """A restriction: a range of offsets of one partition. Not all offsets have a record.

    Attributes:
        start: The first offset.
        stop: The offset after the last one. None: the range has no end.
    """

    start: int
    stop: int | None


class PartitionElement(NamedTuple):
    """The offsets to read of one partition: an element of the pipeline, encoded as a tuple.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        start: The first offset.
        stop: The offset after the last one. -1: the read has no end.
        watermark_us: The initial watermark of the partition, in microseconds.
    """

    topic: str
    partition: int
    start: int
    stop: int
    watermark_us: int


ELEMENT_TYPE = tuple[str, int, int, int, int]
"""The type hint of ``PartitionElement``s: the coder of tuples is the same in all versions."""


class OffsetsCoder(Coder):  # type: ignore[misc]
    """Encodes ``OffsetInterval`` as text, which later versions of this package can decode."""

    @override
    def encode(self, value: OffsetInterval) -> bytes:
        return f"{value.start}:{'' if value.stop is None else value.stop}".encode()

    def decode(self, encoded: bytes) -> OffsetInterval:
        start, _, stop = encoded.decode().partition(":")
        return OffsetInterval(int(start), int(stop) if stop else None)

    def is_deterministic(self) -> bool:
        return True


NO_MORE = -1
"""The position to claim if a partition was deleted: the restriction ends at its last claim."""


class OffsetsTracker(RestrictionTracker):  # type: ignore[misc]
    """Claims whole batches: ``try_claim(upto)`` claims all offsets below ``upto``.

    A claim beyond ``stop`` fails and claims nothing; the caller may claim the current ``stop``
    instead. See also ``NO_MORE``.

    Args:
        offsets: The restriction.
        is_whole: Whether it must not be split dynamically, but only checkpointed.
    """

    def __init__(self, offsets: OffsetInterval, *, is_whole: bool = False) -> None:
        self._start, self._stop = offsets
        self._is_whole = is_whole or self._stop is None  # an endless range has no middle
        self._claimed = offsets.start  # all offsets below are claimed

    @override
    def current_restriction(self) -> OffsetInterval:
        return OffsetInterval(self._start, self._stop)

    def try_claim(self, position: int) -> bool:
        if position == NO_MORE:
            self._stop = self._claimed
            return True
        if position < self._claimed:
            raise ValueError(f"offsets below {self._claimed} are claimed, also {position}")
        if self._stop is not None and position > self._stop:
            return False
        self._claimed = position
        return True

    def check_done(self) -> None:
        if self._stop is None or self._claimed < self._stop:
            stop = "without an end" if self._stop is None else f"up to {self._stop}"
            raise ValueError(f"offsets {stop} were not read, only those below {self._claimed}")

    def current_progress(self) -> RestrictionProgress:
        remainder = 1 if self._stop is None else self._stop - self._claimed
        return RestrictionProgress(completed=self._claimed - self._start, remaining=remainder)

    def try_split(
        self, fraction_of_remainder: float
    ) -> tuple[OffsetInterval, OffsetInterval] | None:
        if self._is_whole and fraction_of_remainder > 0:
            return None
        if self._stop is None:
            cut = self._claimed
        else:
            remainder = self._stop - self._claimed
            if remainder <= 0:
                return None
            cut = self._claimed + int(remainder * fraction_of_remainder)
            if cut >= self._stop:
                return None
        residual = OffsetInterval(cut, self._stop)
        self._stop = cut
        return OffsetInterval(self._start, cut), residual

    def is_bounded(self) -> bool:
        return self._stop is not None


_MIN_IN_A_PIECE = 20_000
_MAX_PIECES = 32


class OffsetsProvider(beam.transforms.core.RestrictionProvider):  # type: ignore[misc]
    """The restriction provider of ``PartitionElement``s."""

    @override
    def initial_restriction(self, element: ELEMENT_TYPE) -> OffsetInterval:
        _, _, start, stop, _ = element
        return OffsetInterval(start, None if stop < 0 else stop)

    def create_tracker(self, restriction: OffsetInterval) -> OffsetsTracker:
        return OffsetsTracker(restriction)

    def restriction_coder(self) -> OffsetsCoder:
        return OffsetsCoder()

    def restriction_size(self, element: ELEMENT_TYPE, restriction: OffsetInterval) -> int:
        """Return the number of offsets; 1 if the range has no end."""
        return 1 if restriction.stop is None else restriction.stop - restriction.start

    def split(self, element: ELEMENT_TYPE, restriction: OffsetInterval) -> list[OffsetInterval]:
        """Split a large range with an end into pieces, which several tasks can read."""
        start, stop = restriction
        if stop is None or stop - start < 2 * _MIN_IN_A_PIECE:
            return [restriction]
        count = min(_MAX_PIECES, (stop - start) // _MIN_IN_A_PIECE)
        cuts = [start + (stop - start) * number // count for number in range(count + 1)]
        return [OffsetInterval(*pair) for pair in itertools.pairwise(cuts)]


class WholePartitionsProvider(OffsetsProvider):
    """The restriction provider of reads that commit offsets: a partition is not split.

    A commit covers all lower offsets. If pieces were read in parallel, a later one would commit
    offsets that are not read yet, or an earlier one would set the committed offset back.
    """

    @override
    def create_tracker(self, restriction: OffsetInterval) -> OffsetsTracker:
        return OffsetsTracker(restriction, is_whole=True)

    @override
    def split(self, element: ELEMENT_TYPE, restriction: OffsetInterval) -> list[OffsetInterval]:
        return [restriction]
