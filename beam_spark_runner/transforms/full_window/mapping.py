"""The DoFn of ``map_partition``, and the checks of its function's results.

Pickled by value, see ``functions``.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.transforms.full_window.functions import (
    Arguments,
    Chunk,
    PartitionDoFn,
    emitted_at_end,
    per_window,
)
from beam_spark_runner.transforms.full_window.handover import Handover, hand_over
from beam_spark_runner.transforms.full_window.partition_records import PartitionRecords

_LOGGER = logging.getLogger(__name__)


class MapPartitionDoFn(PartitionDoFn):
    """Runs the user's DoFn over the records while they arrive.

    Args:
        users: The DoFn, whose ``process`` takes an iterator of records.
        of_empty: See ``PartitionDoFn``.
    """

    def __init__(self, users: beam.DoFn, of_empty: Arguments | None) -> None:
        super().__init__(of_empty)
        self._users = users
        self._handover: Handover | None = None

    @override
    def setup(self) -> None:
        self._users.setup()

    @override
    def teardown(self) -> None:
        """Also ends the function of a bundle that has failed."""
        self._abandon()
        self._users.teardown()

    def _abandon(self) -> None:
        handover, self._handover = self._handover, None
        if handover is not None and not handover.abandon():
            _LOGGER.warning("the function of map_partition has not ended with its task")

    @override
    def start_bundle(self) -> None:
        self._abandon()
        super().start_bundle()
        self._users.start_bundle()

    @override
    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().begin(args, kwargs)
        process = self._users.process
        self._handover = hand_over(lambda records: results_of(process(records, *args, **kwargs)))

    @override
    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Chunk]:
        assert self._handover is not None
        return _emitted(self._handover.feed(per_window(values, origins)))

    @override
    def end(self) -> Iterator[Chunk]:
        assert self._handover is not None
        yield from _emitted(self._handover.end())
        self._handover = None
        if last := self.finish_whole():
            yield emitted_at_end(last)

    @override
    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[Any]:
        for result in results_of(self._users.process(PartitionRecords([records]), *args, **kwargs)):
            _check(type(result))
            yield result

    @override
    def start_whole(self) -> None:
        self._users.start_bundle()

    @override
    def finish_whole(self) -> list[Any]:
        return [_result_of_finish(result) for result in self._users.finish_bundle() or ()]


def results_of(results: Any) -> Iterable[Any]:
    """Return the results in what a function of ``map_partition`` has returned; None: no results.

    Raises:
        TypeError: It has returned a str, bytes or dict.
    """
    if isinstance(results, str | bytes | dict):
        raise TypeError(
            f"the function of map_partition returned a {type(results).__name__}; it has to return "
            "an iterable of results, such as a list or a generator"
        )
    return () if results is None else results


_SPECIAL = (WindowedValue, TimestampedValue, beam.pvalue.TaggedOutput)


def _check(kind: type) -> None:
    """Check the type of a result.

    Raises:
        TypeError: It is a windowed, timestamped or tagged value.
    """
    if issubclass(kind, _SPECIAL):
        raise TypeError(
            f"the function of map_partition returned a {kind.__name__}; its results must be plain "
            "values, which get the end of the global window as their timestamp"
        )


def _emitted(several: Iterable[list[Any]]) -> Iterator[Chunk]:
    for results in several:
        for kind in set(map(type, results)):
            _check(kind)
        yield emitted_at_end(results)


def _result_of_finish(result: Any) -> Any:
    """Return the value of a result of the user's ``finish_bundle``.

    Raises:
        TypeError: The result is not a WindowedValue, as Beam requires.
    """
    if not isinstance(result, WindowedValue):
        raise TypeError(f"finish_bundle has to yield WindowedValues, not {type(result).__name__}")
    return result.value


class FunctionDoFn(beam.DoFn):  # type: ignore[misc]
    """A DoFn that calls a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    @override
    def process(self, records: PartitionRecords, *args: Any, **kwargs: Any) -> Any:
        return self._fn(records, *args, **kwargs)
