"""Decides which results of user code may be collected in a chunk, see ``constants``."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from apache_beam import pvalue
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedBatch, WindowedValue

from beam_spark_runner.harness.values.constants import (
    ATOMS,
    Kind,
    is_constant,
    is_plain,
    may_change,
)

SPECIAL = (WindowedValue, WindowedBatch, TimestampedValue, pvalue.TaggedOutput)
"""The types of results that wrap a value, with a timestamp, windows or a tag."""

_SENT = object()  # stands for a result that was sent at once
_WRAPPERS = {TimestampedValue, pvalue.TaggedOutput}


SendOne: TypeAlias = Callable[[Any, WindowedValue], None]
"""Passes one result to the next steps, with its origin."""


class Output(Protocol):
    """Takes the results of a step."""

    @property
    def send_one(self) -> SendOne: ...

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        """Pass results to the next steps; each has the timestamp, windows and pane of its origin.

        Args:
            results: At least one result. The caller does not change the list afterwards.
            origins: The origin of each result.
            kind: The kind of the results, or of the values that ``SPECIAL`` results wrap.
            are_values: Whether no result is of the ``SPECIAL`` types.
        """
        ...


@functools.lru_cache(maxsize=1024)
def never_waits(kind: type) -> bool:
    """Whether ``ResultFilter`` sends all results of a type at once."""
    return may_change(kind) and kind not in _WRAPPERS


class ResultFilter:
    """Sends results at once if they may change; constants may wait for a chunk.

    Args:
        output: Takes the results.
        origin_of: Returns the origin of the current result.
        kind: The kind of results that wait without being examined.

    Attributes:
        kind: The kind of the waiting results.
        are_values: Whether none of the waiting results is of the ``SPECIAL`` types.
    """

    def __init__(
        self, output: Output, origin_of: Callable[[], WindowedValue], kind: Kind = Kind.PLAIN
    ) -> None:
        self._send_one = output.send_one
        self._origin_of = origin_of
        self._has_sent = False
        self.are_values = True
        self.kind = kind

    def settle(self, result: Any) -> Any:
        """Return a result that may wait, or send it and return a placeholder."""
        is_wrapped = type(result) in _WRAPPERS
        value = result.value if is_wrapped else result
        if not is_plain(value):
            if not is_constant(value):
                self._has_sent = True
                self._send_one(result, self._origin_of())
                return _SENT
            if self.kind is Kind.PLAIN:
                self.kind = Kind.CONSTANT
        if is_wrapped:
            self.are_values = False
        return result

    def settle_into(self, batch: list[Any], result: Any) -> None:
        """Append a result to ``batch`` if it may wait, or send it."""
        if (settled := self.settle(result)) is not _SENT:
            batch.append(settled)

    def settled(self, results: Iterable[Any]) -> list[Any]:
        """Call ``settle`` for each result, unless it is certain to return the result."""
        settle = self.settle
        # Pairs of constants are frequent, and checking them here takes half as long as a call.
        return [
            result
            if type(result) in ATOMS
            or (
                type(result) is tuple
                and len(result) == 2
                and type(result[0]) in ATOMS
                and type(result[1]) in ATOMS
            )
            else settle(result)
            for result in results
        ]

    def waiting(self, settled: list[Any]) -> list[Any]:
        """Return the results among ``settled`` that wait."""
        if not self._has_sent:
            return settled
        return [result for result in settled if result is not _SENT]

    def origins_of_waiting(
        self, settled: list[Any], origins: list[WindowedValue]
    ) -> list[WindowedValue]:
        """Return the origins of the results among ``settled`` that wait."""
        if not self._has_sent:
            return origins
        return list(itertools.compress(origins, [result is not _SENT for result in settled]))
