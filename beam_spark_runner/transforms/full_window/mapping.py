"""The DoFn of ``map_partition``, and what its function may return.

Pickled by value, see ``functions``.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.transforms.full_window.functions import (
    Arguments,
    Chunk,
    PartitionDoFn,
    emitted_at_end,
    per_window,
)
from beam_spark_runner.transforms.full_window.handover import Handover, Records

_LOGGER = logging.getLogger(__name__)
_JOIN_S = 10.0


class MapPartitionDoFn(PartitionDoFn):
    """Hands the records to a function that runs in a thread of its own while they arrive."""

    def __init__(self, users: beam.DoFn, of_empty: Arguments | None) -> None:
        super().__init__(of_empty)
        self._users = users
        self._handover: Handover | None = None

    def setup(self) -> None:
        """See ``DoFn``."""
        self._users.setup()

    def teardown(self) -> None:
        """See ``DoFn``. Also called where a bundle was abandoned."""
        self._abandon()
        self._users.teardown()

    def _abandon(self) -> None:
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.abandon()
            if not handover.join(_JOIN_S):
                _LOGGER.warning(
                    "the function of map_partition has not ended %.0f s after its task", _JOIN_S
                )

    def start_bundle(self) -> None:
        """See ``DoFn``."""
        self._abandon()
        super().start_bundle()
        self._users.start_bundle()

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See ``PartitionDoFn.begin``."""
        super().begin(args, kwargs)
        process = self._users.process
        self._handover = Handover(lambda records: results_of(process(records, *args, **kwargs)))

    def take(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Chunk]:
        """See ``PartitionDoFn.take``."""
        assert self._handover is not None
        return map(emitted_at_end, self._handover.feed(per_window(values, origins)))

    def end(self) -> Iterator[Chunk]:
        """See ``PartitionDoFn.end``."""
        assert self._handover is not None
        yield from map(emitted_at_end, self._handover.end())
        self._handover.join(_JOIN_S)
        self._handover = None
        if last := self.finish_whole():
            yield emitted_at_end(last)

    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[Any]:
        """See ``PartitionDoFn.run``."""
        return results_of(self._users.process(Records(records), *args, **kwargs))

    def start_whole(self) -> None:
        """See ``PartitionDoFn.start_whole``."""
        self._users.start_bundle()

    def finish_whole(self) -> list[Any]:
        """See ``PartitionDoFn.finish_whole``."""
        return [_result_of_finish(each) for each in self._users.finish_bundle() or ()]


def results_of(results: Any) -> Iterator[Any]:
    """Check what a function of ``map_partition`` returns, and yield its results.

    Raises:
        TypeError: it returns, or yields, what is no result here.
    """
    if results is None:
        return
    if isinstance(results, str | bytes | dict):
        raise TypeError(
            f"the function of map_partition returned a {type(results).__name__}; it has to return "
            "an iterable of results, such as a list or a generator"
        )
    for result in results:
        if isinstance(result, _SPECIAL):
            raise TypeError(
                f"the function of map_partition made a {type(result).__name__}; its results are "
                "bare values, in the global window at its end"
            )
        yield result


_SPECIAL = (WindowedValue, TimestampedValue, beam.pvalue.TaggedOutput)


def _result_of_finish(result: Any) -> Any:
    """Return the value of what ``finish_bundle`` of a user's DoFn gives.

    Raises:
        TypeError: it is no WindowedValue, which Beam asks for.
    """
    if not isinstance(result, WindowedValue):
        raise TypeError(f"finish_bundle has to yield WindowedValues, not {type(result).__name__}")
    return result.value


class FunctionDoFn(beam.DoFn):  # type: ignore[misc]
    """A function as a DoFn."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def process(self, records: Records, *args: Any, **kwargs: Any) -> Any:
        """See ``DoFn``."""
        return self._fn(records, *args, **kwargs)
