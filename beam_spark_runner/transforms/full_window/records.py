"""The records of a partition, as the function of ``map_partition`` gets them."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

CAPACITY = 100
"""How many records may wait for a function in a thread of its own, and results for its bundle."""


class AbandonedPartitionError(BaseException):
    """Raised in the function: the bundle has ended without the rest of its records.

    Not an ``Exception``, so that code which survives those of single records does not go on.
    """


class SecondPassError(RuntimeError):
    """The records of a partition are there once: they stream."""

    def __init__(
        self,
        message: str = (
            "the records of a partition can be read only once, and all of them have been read; "
            "keep those that are needed again in a list"
        ),
    ) -> None:
        super().__init__(message)


class Records:
    """An iterator over the records of a partition, which does not begin again.

    As any iterator it goes on where it was left. Once it has ended, another pass over it is an
    error: it would find an empty partition.

    Args:
        blocks: of records, one after the other.
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
