"""The DoFns of full-window partitions whose bundle is one partition.

``start_bundle`` is the beginning of the partition and ``finish_bundle`` its end. Beam's own
operations call ``process`` for each element; those of this runner call ``begin``, ``take`` and
``end``, which take and give many at once, and have the side inputs of an empty partition, too.

These classes are pickled by value (see ``full_window``): nothing here may import anything but
Beam, Python's own modules, and files that are pickled so, too.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.element_sorter import ElementSorter, distinct

_CHUNK = 128  # elements
_windows_of = operator.attrgetter("windows")
AT_END = WindowedValue(None, GlobalWindow().max_timestamp(), (GlobalWindow(),))
"""Where results are that belong to no record: at the end of the global window."""

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
Chunk: TypeAlias = tuple[list[Any], list[WindowedValue]]
"""Values, and for each a windowed value that gives it its timestamp, windows and pane."""


class PartitionDoFn(beam.DoFn):  # type: ignore[misc]
    """A DoFn whose bundle is a partition.

    Args:
        of_empty: what user code gets after the records, by place and by name, where there are no
            side inputs among it; else None.
    """

    takes_partition = True  # by which an operation of this runner knows it

    def __init__(self, of_empty: Arguments | None) -> None:
        self._of_empty = of_empty
        self.has_begun = self.has_ended = False

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Begin a partition, once. ``args`` and ``kwargs``: with the values of side inputs."""
        self._args, self._kwargs = args, kwargs
        self.has_begun = True

    def take(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        """Take elements, and yield what results have been made meanwhile."""
        raise NotImplementedError

    def end(self) -> Iterable[Chunk]:
        """End the partition, once, and yield the other results."""
        raise NotImplementedError

    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterable[Any]:
        """Return the results of a partition that is there as a whole.

        Between ``start_whole`` and ``finish_whole``, which begin and end a bundle. Records and
        results of a sort are coded elements and windowed values; else both are bare values.
        """
        raise NotImplementedError

    def start_whole(self) -> None:
        """Begin a bundle of partitions that are there as a whole."""

    def finish_whole(self) -> Iterable[Any]:
        """End such a bundle, and return further results."""
        return ()

    def default_type_hints(self) -> IOTypeHints:
        """Say nothing of types: the transform does."""
        return IOTypeHints.empty()

    def start_bundle(self) -> None:
        """See ``DoFn``."""
        self.has_begun = self.has_ended = False

    def process(
        self,
        element: Any,
        _timestamp: Any = beam.DoFn.TimestampParam,
        _window: Any = beam.DoFn.WindowParam,
        _pane_info: Any = beam.DoFn.PaneInfoParam,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[WindowedValue]:
        """Take an element, for one of its windows: Beam counts it as often as it has windows."""
        if not self.has_begun:
            self.begin(args, kwargs)
        origin = WindowedValue(element, _timestamp, (_window,), _pane_info)
        for results, origins in self.take([element], [origin]):
            yield from _windowed(results, origins)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """See ``DoFn``. Ends the partition, where an operation has not done so."""
        if self.has_ended:
            return
        if not self.has_begun:
            if self._of_empty is None:
                raise RuntimeError(
                    "a partition has no records, and Beam's own operations in this SDK harness "
                    "give a DoFn its side inputs only with an element; install beam-spark-runner "
                    "in its environment"
                )
            self.begin(*self._of_empty)
        for results, origins in self.end():
            yield from _windowed(results, origins)
        self.has_ended = True


def _windowed(values: list[Any], origins: list[WindowedValue]) -> Iterator[WindowedValue]:
    return (origin.with_value(value) for value, origin in zip(values, origins, strict=True))


def per_window(values: list[Any], origins: list[WindowedValue]) -> list[Any]:
    """Return each value as often as Beam counts it: once for each of its windows."""
    if max(map(len, map(_windows_of, distinct(origins)))) == 1:
        return values
    return [value for value, origin in zip(values, origins, strict=True) for _ in origin.windows]


def emitted_at_end(results: list[Any]) -> Chunk:
    """Place results at the end of the global window."""
    return results, [AT_END] * len(results)


class SortPartitionDoFn(PartitionDoFn):
    """Emits the records in the order of their keys, each with its timestamp and window."""

    def __init__(
        self,
        key: Callable[[Any], Any],
        *,
        descends: bool,
        memory_bytes: int,
        codec: ElementCodec,
    ) -> None:
        super().__init__(((), {}))
        self._codec = codec
        self._key = key
        self._descends = descends
        self._memory_bytes = memory_bytes
        self._sorter: ElementSorter | None = None

    def setup(self) -> None:
        """See ``DoFn``."""
        self._codec.setup()

    def teardown(self) -> None:
        """See ``DoFn``. Also called where a bundle was abandoned."""
        self._drop()

    def _drop(self) -> None:
        sorter, self._sorter = self._sorter, None
        if sorter is not None:
            sorter.close()

    def start_bundle(self) -> None:
        """See ``DoFn``."""
        self._drop()
        super().start_bundle()

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See ``PartitionDoFn.begin``."""
        super().begin(args, kwargs)
        self._sorter = ElementSorter(
            self._codec, self._key, descends=self._descends, memory_bytes=self._memory_bytes
        )

    def take(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        """See ``PartitionDoFn.take``."""
        assert self._sorter is not None
        self._sorter.add(values, origins)
        return ()

    def end(self) -> Iterator[Chunk]:
        """See ``PartitionDoFn.end``."""
        assert self._sorter is not None
        yield from self._sorter.sorted()
        self._drop()

    def run(
        self, records: Iterable[bytes], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[WindowedValue]:
        """See ``PartitionDoFn.run``."""
        self.begin(args, kwargs)
        assert self._sorter is not None
        rest = iter(records)
        while coded := [*itertools.islice(rest, _CHUNK)]:
            self._sorter.add_coded(coded)
        for results, origins in self.end():
            yield from _windowed(results, origins)


class AggregateDoFn(PartitionDoFn):
    """Folds the records into one accumulator; accumulators are never merged."""

    def __init__(self, combine_fn: beam.CombineFn, of_empty: Arguments | None) -> None:
        super().__init__(of_empty)
        self._combine_fn = combine_fn
        self._accumulator: Any = None

    def setup(self) -> None:
        """See ``DoFn``."""
        self._combine_fn.setup()

    def teardown(self) -> None:
        """See ``DoFn``."""
        self._combine_fn.teardown()

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See ``PartitionDoFn.begin``."""
        super().begin(args, kwargs)
        self._accumulator = self._combine_fn.create_accumulator(*args, **kwargs)

    def take(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        """See ``PartitionDoFn.take``."""
        self._accumulator = _folded(
            self._combine_fn,
            self._accumulator,
            per_window(values, origins),
            self._args,
            self._kwargs,
        )
        return ()

    def end(self) -> Iterator[Chunk]:
        """See ``PartitionDoFn.end``."""
        accumulator, self._accumulator = self._accumulator, None
        yield emitted_at_end(
            [self._combine_fn.extract_output(accumulator, *self._args, **self._kwargs)]
        )

    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """See ``PartitionDoFn.run``."""
        accumulator = self._combine_fn.create_accumulator(*args, **kwargs)
        accumulator = _folded(self._combine_fn, accumulator, records, args, kwargs)
        return [self._combine_fn.extract_output(accumulator, *args, **kwargs)]


def _folded(
    combine_fn: beam.CombineFn,
    accumulator: Any,
    values: Iterable[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    if _adds_several(combine_fn):
        rest = iter(values)
        while several := [*itertools.islice(rest, _CHUNK)]:  # it may make a list of them
            accumulator = combine_fn.add_inputs(accumulator, several, *args, **kwargs)
        return accumulator
    add = combine_fn.add_input
    if args or kwargs:
        for value in values:
            accumulator = add(accumulator, value, *args, **kwargs)
    else:
        for value in values:
            accumulator = add(accumulator, value)
    return accumulator


def _adds_several(combine_fn: beam.CombineFn) -> bool:
    """Whether ``add_inputs`` is more than a loop over ``add_input``, and as new as it."""
    for kind in type(combine_fn).__mro__:
        if "add_inputs" in vars(kind) or "add_input" in vars(kind):
            return kind is not beam.CombineFn and "add_inputs" in vars(kind)
    return False


class ReduceDoFn(PartitionDoFn):
    """Combines the records two by two, in the order of their coming; nothing of none."""

    def __init__(self, fn: Callable[..., Any], of_empty: Arguments | None) -> None:
        super().__init__(of_empty)
        self._fn = fn
        self._reduced: list[Any] = []  # the result so far, if there is one

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See ``PartitionDoFn.begin``."""
        super().begin(args, kwargs)
        self._reduced = []

    def take(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        """See ``PartitionDoFn.take``."""
        values = [*self._reduced, *per_window(values, origins)]
        self._reduced = self.run(values, self._args, self._kwargs)
        return ()

    def end(self) -> Iterator[Chunk]:
        """See ``PartitionDoFn.end``."""
        result, self._reduced = self._reduced, []
        if result:
            yield emitted_at_end(result)

    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """See ``PartitionDoFn.run``."""
        rest = iter(records)
        for result in rest:
            for value in rest:
                result = self._fn(result, value, *args, **kwargs)
            return [result]
        return []
