"""Decides which results of user code may wait until a chunk is complete, see ``constants``."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from apache_beam import pvalue
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedBatch, WindowedValue

from beam_spark_runner.harness.values.constants import ATOMS, Kind, is_constant, is_plain

SPECIAL = (WindowedValue, WindowedBatch, TimestampedValue, pvalue.TaggedOutput)
"""What a result may be that is no value by itself."""

_SENT = object()  # stands for a result that did not wait
_WRAPPERS = {TimestampedValue, pvalue.TaggedOutput}


SendOne: TypeAlias = Callable[[Any, WindowedValue], None]
"""Processes one result further, with its origin."""


class Output(Protocol):
    """Takes the results of a step."""

    @property
    def send_one(self) -> SendOne: ...

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        """Process results further; each has the timestamp, windows and pane of its origin.

        Args:
            results: at least one. The list is not changed afterwards.
            origins: one for each result.
            kind: of the results, or of what those of the ``SPECIAL`` types wrap.
            are_values: False: some may be of the ``SPECIAL`` types.
        """
        ...


class Settling:
    """Sends on at once what may not wait.

    Args:
        output: takes results.
        origin_of: returns the origin of the result that is looked at.
        kind: of results that may wait without a look at them.
    """

    def __init__(
        self, output: Output, origin_of: Callable[[], WindowedValue], kind: Kind = Kind.PLAIN
    ) -> None:
        self._send_one = output.send_one
        self._origin_of = origin_of
        self._has_sent = False
        self.are_values = True  # those that wait
        self.kind = kind  # of those that wait

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

    def settle_into(self, waiting: list[Any], result: Any) -> None:
        """Add a result to those that wait if it may wait, or send it."""
        if (settled := self.settle(result)) is not _SENT:
            waiting.append(settled)

    def settled(self, results: Iterable[Any]) -> list[Any]:
        """Call ``settle`` for each result, unless it is certain to return the result."""
        settle = self.settle
        # Pairs of constants are frequent, and to look at them here takes half as long as a call.
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
        """Return the results that wait."""
        if not self._has_sent:
            return settled
        return [result for result in settled if result is not _SENT]

    def origins_of_waiting(
        self, settled: list[Any], origins: list[WindowedValue]
    ) -> list[WindowedValue]:
        """Return the origins of results that wait."""
        if not self._has_sent:
            return origins
        return list(itertools.compress(origins, [result is not _SENT for result in settled]))
