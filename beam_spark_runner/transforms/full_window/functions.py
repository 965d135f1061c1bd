"""The DoFns of full-window partitions whose bundle is one partition.

A partition begins at ``start_bundle`` and ends at ``finish_bundle``. Beam's own operations call
``process`` for each element. Those of this runner call ``begin``, ``add`` and ``end``, which
process many elements at once, and have side inputs also if the partition is empty.

These classes are pickled by value (see ``full_window``): this module may import only Beam, the
standard library, and modules that are pickled by value, too.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.element_sorter import ElementSorter, distinct

_CHUNK = 128  # elements
_windows_of = operator.attrgetter("windows")
AT_END = WindowedValue(None, GlobalWindow().max_timestamp(), (GlobalWindow(),))
"""The timestamp and window of results that belong to no record: the end of the global window."""

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
Chunk: TypeAlias = tuple[list[Any], list[WindowedValue]]
"""Values, and for each its origin: the windowed value with its timestamp, windows and pane."""


class PartitionDoFn(beam.DoFn):  # type: ignore[misc]
    """A DoFn whose bundle is a partition.

    Args:
        of_empty: The positional and keyword arguments of user code after the records. None: there
            are side inputs among them.
    """

    takes_partition = True  # by which ``harness.beam.partition_steps`` recognises it

    def __init__(self, of_empty: Arguments | None) -> None:
        self._of_empty = of_empty
        self.has_begun = self.has_ended = False

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Begin the partition, once.

        Args:
            args: The further positional arguments of user code, with the values of side inputs.
            kwargs: The keyword arguments.
        """
        self._args, self._kwargs = args, kwargs
        self.has_begun = True

    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        """Add elements; return the results so far."""
        raise NotImplementedError

    def end(self) -> Iterable[Chunk]:
        """End the partition, once; return the remaining results."""
        raise NotImplementedError

    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterable[Any]:
        """Return the results of a complete partition, for ``whole``.

        It is called between ``start_whole`` and ``finish_whole``, in place of the other methods.

        Args:
            records: The values; for a sort, encoded elements.
            args: See ``begin``.
            kwargs: See ``begin``.

        Returns:
            The results as values; those of a sort as windowed values.
        """
        raise NotImplementedError

    def start_whole(self) -> None:
        """Begin a bundle of complete partitions."""

    def finish_whole(self) -> Iterable[Any]:
        """End a bundle of complete partitions; return further results."""
        return ()

    def default_type_hints(self) -> IOTypeHints:
        """Return no hints: the transform declares the types."""
        return IOTypeHints.empty()

    @override
    def start_bundle(self) -> None:
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
        """Add an element in one of its windows: Beam calls this once for each window."""
        if not self.has_begun:
            self.begin(args, kwargs)
        origin = WindowedValue(element, _timestamp, (_window,), _pane_info)
        for results, origins in self.add([element], [origin]):
            yield from _windowed(results, origins)

    @override
    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Ends the partition, unless an operation of this runner has done so."""
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
    """Return each value once for each of its windows."""
    if max(map(len, map(_windows_of, distinct(origins)))) == 1:
        return values
    return [value for value, origin in zip(values, origins, strict=True) for _ in origin.windows]


def emitted_at_end(results: list[Any]) -> Chunk:
    """Return a chunk of results at the end of the global window."""
    return results, [AT_END] * len(results)


class SortPartitionDoFn(PartitionDoFn):
    """Emits the records in the order of their keys, each with its timestamp and window.

    See ``ElementSorter`` for the arguments.
    """

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

    @override
    def setup(self) -> None:
        self._codec.setup()

    @override
    def teardown(self) -> None:
        """Also drops the records of a bundle that has failed."""
        self._drop()

    def _drop(self) -> None:
        sorter, self._sorter = self._sorter, None
        if sorter is not None:
            sorter.close()

    @override
    def start_bundle(self) -> None:
        self._drop()
        super().start_bundle()

    @override
    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().begin(args, kwargs)
        self._sorter = ElementSorter(
            self._codec, self._key, descends=self._descends, memory_bytes=self._memory_bytes
        )

    @override
    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        assert self._sorter is not None
        self._sorter.add(values, origins)
        return ()

    @override
    def end(self) -> Iterator[Chunk]:
        assert self._sorter is not None
        yield from self._sorter.sorted()
        self._drop()

    @override
    def run(
        self, records: Iterable[bytes], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[WindowedValue]:
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

    @override
    def setup(self) -> None:
        self._combine_fn.setup()

    @override
    def teardown(self) -> None:
        self._combine_fn.teardown()

    @override
    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().begin(args, kwargs)
        self._accumulator = self._combine_fn.create_accumulator(*args, **kwargs)

    @override
    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        self._accumulator = _folded(
            self._combine_fn,
            self._accumulator,
            per_window(values, origins),
            self._args,
            self._kwargs,
        )
        return ()

    @override
    def end(self) -> Iterator[Chunk]:
        accumulator, self._accumulator = self._accumulator, None
        yield emitted_at_end(
            [self._combine_fn.extract_output(accumulator, *self._args, **self._kwargs)]
        )

    @override
    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
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
        while several := [*itertools.islice(rest, _CHUNK)]:  # ``add_inputs`` may store its list
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
    """Whether a class overrides ``add_inputs``, and no subclass of it ``add_input`` alone."""
    for kind in type(combine_fn).__mro__:
        if "add_inputs" in vars(kind) or "add_input" in vars(kind):
            return kind is not beam.CombineFn and "add_inputs" in vars(kind)
    return False


class ReduceDoFn(PartitionDoFn):
    """Combines the records two by two, in order of arrival. An empty partition has no result."""

    def __init__(self, fn: Callable[..., Any], of_empty: Arguments | None) -> None:
        super().__init__(of_empty)
        self._fn = fn
        self._reduced: list[Any] = []  # the result so far, if there is one

    @override
    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().begin(args, kwargs)
        self._reduced = []

    @override
    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]:
        values = [*self._reduced, *per_window(values, origins)]
        self._reduced = self.run(values, self._args, self._kwargs)
        return ()

    @override
    def end(self) -> Iterator[Chunk]:
        result, self._reduced = self._reduced, []
        if result:
            yield emitted_at_end(result)

    @override
    def run(
        self, records: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        rest = iter(records)
        for result in rest:
            for value in rest:
                result = self._fn(result, value, *args, **kwargs)
            return [result]
        return []
