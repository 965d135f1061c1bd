"""The DoFns of full-window partitions that get all records of a partition as one iterable.

With ``by_key``, the records are the values of a key after a GroupByKey. On other runners, which do
not expose partitions, they are all elements of the collection, as a side input of an impulse.

Pickled by value, see ``functions``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.functions import AT_END, PartitionDoFn


class _Whole(beam.DoFn):  # type: ignore[misc]
    def __init__(self, fn: PartitionDoFn) -> None:
        self._fn = fn

    @override
    def setup(self) -> None:
        self._fn.setup()

    @override
    def start_bundle(self) -> None:
        self._fn.start_whole()

    @override
    def teardown(self) -> None:
        self._fn.teardown()

    def default_type_hints(self) -> Any:
        """Return no hints: the transform declares the types."""
        return self._fn.default_type_hints()


class KeyDoFn(_Whole):
    """Runs a ``PartitionDoFn`` over the values of each key, and emits results with the key."""

    @override
    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """``element`` is a key with an iterable of its values."""
        key, values = element
        for result in self._fn.run(values, args, kwargs):
            if isinstance(result, WindowedValue):
                yield result.with_value((key, result.value))
            else:
                yield key, result

    @override
    def finish_bundle(self) -> None:
        for _ in self._fn.finish_whole():
            raise TypeError(
                "finish_bundle cannot emit anything here: results of a keyed collection belong to "
                "a key"
            )


class OnePartitionDoFn(_Whole):
    """Runs a ``PartitionDoFn`` over all elements of a collection, a side input."""

    @override
    def process(
        self, element: Any, records: Iterable[Any], *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        """``element`` is that of an impulse."""
        for result in self._fn.run(records, args, kwargs):
            if isinstance(result, WindowedValue):
                yield result
            else:
                yield AT_END.with_value(result)

    @override
    def finish_bundle(self) -> Iterator[WindowedValue]:
        return map(AT_END.with_value, self._fn.finish_whole())


class EncodeDoFn(beam.DoFn):  # type: ignore[misc]
    """Encodes elements with their timestamp, window and pane."""

    def __init__(self, codec: ElementCodec, *, is_keyed: bool) -> None:
        self._codec = codec
        self._is_keyed = is_keyed

    @override
    def setup(self) -> None:
        self._codec.setup()

    @override
    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane_info: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any]:
        key, value = element if self._is_keyed else (None, element)
        (coded,) = self._codec.encode(value, WindowedValue(None, timestamp, (window,), pane_info))
        yield (key, coded) if self._is_keyed else coded

    def default_type_hints(self) -> Any:
        """Return no hints: the transform declares the types."""
        return beam.typehints.decorators.IOTypeHints.empty()
