"""The iterator over the records of a partition that a function of ``map_partition`` gets."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

CAPACITY = 100
"""The most records that wait for a function, and results that wait for its bundle."""


class AbandonedPartitionError(BaseException):
    """Ends the function of ``map_partition`` if its bundle ends before all records were read.

    It is not an ``Exception``, so that code that handles errors of single records does not
    continue.
    """


class SecondPassError(RuntimeError):
    """The records of a partition were read a second time: they can only be streamed once."""

    def __init__(
        self,
        message: str = (
            "the records of a partition can be read only once, and all of them have been read; "
            "keep those that are needed again in a list"
        ),
    ) -> None:
        super().__init__(message)


class PartitionRecords:
    """An iterator over the records of a partition, which can be read once.

    A second ``iter`` before the end continues, as with any iterator. After the end, it raises a
    SecondPassError, since the partition would seem to be empty.

    Args:
        blocks: The records, in blocks.
    """

    def __init__(self, blocks: Iterable[Iterable[Any]]) -> None:
        self._has_ended = False
        self._records = itertools.chain.from_iterable(self._until_end(blocks))

    def _until_end(self, blocks: Iterable[Iterable[Any]]) -> Iterator[Iterable[Any]]:
        yield from blocks
        self._has_ended = True

    def __iter__(self) -> Iterator[Any]:
        if self._has_ended:
            raise SecondPassError
        return self._records

    def __next__(self) -> Any:
        return next(self._records)
