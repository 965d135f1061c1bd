"""Beam's DoFns that read bounded sources and files, with results in lists where they can be."""

import functools
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from apache_beam.io import iobase, textio
from apache_beam.io.filebasedsource import _ReadRange
from apache_beam.transforms import core
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.current_element import CurrentElement
from beam_spark_runner.harness.beam.process_loop import ProcessLoop
from beam_spark_runner.harness.beam.result_filter import Output, SendOne
from beam_spark_runner.harness.beam.text_lines import groups_of_lines
from beam_spark_runner.harness.values.constants import Kind


def is_reader(fn: core.DoFn) -> bool:
    """Whether a DoFn is the one by which Beam reads bounded sources."""
    return getattr(getattr(fn.process, "__func__", None), "__code__", None) == _readers_code()


@functools.cache
def _readers_code() -> CodeType:
    fn = iobase.SDFBoundedSourceReader()._create_sdf_bounded_source_dofn()
    code: CodeType = fn.process.__func__.__code__
    return code


class GroupedReads(core.DoFn):  # type: ignore[misc]
    """Reads bounded sources as Beam's DoFn does, but sends groups of results where it can.

    Args:
        fn: Beam's DoFn.

    Attributes:
        send_new_results: See ``splittable_steps``.
    """

    send_new_results: Callable[[list[Any]], None] | None = None

    def __init__(self, fn: core.DoFn) -> None:
        (tracker,) = fn.process.__func__.__defaults__

        def process(element: Any, restriction_tracker: Any = tracker) -> Iterable[Any] | None:
            restriction = restriction_tracker.current_restriction()
            groups = groups_of_lines(restriction.source(), restriction.range_tracker())
            send = self.send_new_results
            if groups is None or send is None:
                results: Iterable[Any] = fn.process(element, restriction_tracker)
                return results
            for group in groups:
                send(group)
            return None

        self.process = process


class RangesLoop:
    """The loop of the DoFn by which ``ReadAllFromText`` and others read ranges of files.

    Source: ``_ReadRange.process``.
    """

    def __init__(self, fn: _ReadRange) -> None:
        self._fn = fn
        self._others = ProcessLoop(fn.process)  # for files that Beam has to read
        self.current_element = CurrentElement()

    @property
    def limit(self) -> int:
        """The limit of what ``process`` returns; groups are smaller in any case."""
        return self._others.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._others.limit = limit

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        for value, origin in zip(self.current_element.iterate(values), origins, strict=True):
            groups = self._groups(value)
            if groups is None:
                self._others.run([value], [origin], kind, output)
                continue
            for group in groups:
                output.send(group, [origin] * len(group), Kind.PLAIN, are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""
        return self._others.one_by_one(send_one)

    def _groups(self, element: Any) -> Iterator[list[Any]] | None:
        metadata, offsets = element
        source = self._fn._source_from_file(metadata.path)
        if type(source) is not textio._TextSource:
            return None  # before it is split: that may look at the file
        bundles = [*source.split(float("inf"))]
        if not bundles:
            return iter(())
        groups = groups_of_lines(bundles[0].source, offsets.new_tracker())
        if groups is None or not self._fn._with_filename:
            return groups
        return ([(metadata.path, line) for line in group] for group in groups)
