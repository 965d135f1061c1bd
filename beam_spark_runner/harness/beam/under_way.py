"""The element that user code is processing, for the errors that it raises."""

import operator
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from beam_spark_runner.harness.failures import ChargedTo, note_element


class UnderWay:
    """Iterates over the values of a chunk, and says which one was taken last.

    Nothing is done per value: a list's own iterator knows how many are left.
    """

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._rest: Iterator[Any] = iter(self._values)

    def iterate(self, values: list[Any]) -> Iterator[Any]:
        """Return an iterator over values, which become those that are under way."""
        self._values, self._rest = values, iter(values)
        return self._rest

    def end(self) -> None:
        """All values have been processed, or are no longer needed: nothing refers to them."""
        if self._values:
            self.iterate([])

    def note_for(self, error: BaseException) -> None:
        """Note the value that is under way, if there is one, as the element of an error."""
        taken = len(self._values) - operator.length_hint(self._rest)
        if taken:  # not so if user code is interrupted before it has any
            note_element(error, self._values[taken - 1])


class ChargedChunk(ChargedTo):
    """A context manager: what is raised inside it is charged to a step and the element under way.

    No value is kept when it ends.
    """

    __slots__ = ("_under_way",)

    def __init__(self, step_name: str, under_way: UnderWay) -> None:
        super().__init__(step_name)
        self._under_way = under_way

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._under_way.note_for(error)
        self._under_way.end()
        if error is not None:
            super().__exit__(kind, error, traceback)


class ElementOfErrors:
    """Notes the element for which Beam's own invoker raises. Takes the place of a ``DataSampler``.

    Beam calls it from ``DoFnRunner._maybe_sample_exception``, once for each exception. It takes no
    other samples. Source: ``apache_beam.runners.worker.data_sampler``.
    """

    element_sampler = None  # so that operations take no sample of their elements

    def initialize_samplers(self, transform_id: str, descriptor: Any, coder_factory: Any) -> None:
        """See ``DataSampler``. There is nothing to prepare."""

    def sampler_for_output(self, transform_id: str, output_index: int) -> "ElementOfErrors":
        """See ``DataSampler``."""
        return self

    def sample_exception(
        self, element: Any, exc_info: Any, transform_id: str, instruction_id: str
    ) -> None:
        """See ``OutputSampler``. There is no element of timers and of the life cycle."""
        if element is not None:
            note_element(exc_info[1], element.value)
