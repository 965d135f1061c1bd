"""Finds the element that user code was processing when it raised an error."""

import operator
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from typing_extensions import override

from beam_spark_runner.harness.failures import ChargedTo, note_element


class CurrentElement:
    """Iterates over the values of a chunk, and knows which one was taken last.

    This costs nothing per value: a list's iterator knows how many are left.
    """

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._rest: Iterator[Any] = iter(self._values)

    def iterate(self, values: list[Any]) -> Iterator[Any]:
        """Return an iterator over the values of the next chunk."""
        self._values, self._rest = values, iter(values)
        return self._rest

    def end(self) -> None:
        """Drop the references to the values of the chunk."""
        if self._values:
            self.iterate([])

    def note_for(self, error: BaseException) -> None:
        """Attach the current value, if there is one, to an error as its element."""
        count = len(self._values) - operator.length_hint(self._rest)
        if count:  # false if the error was raised before the first value
            note_element(error, self._values[count - 1])


class ChargedChunk(ChargedTo):
    """A context manager that assigns exceptions of its block to a step and the current element.

    No reference to a value remains after the block.
    """

    __slots__ = ("_current_element",)

    def __init__(self, step_name: str, current_element: CurrentElement) -> None:
        super().__init__(step_name)
        self._current_element = current_element

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._current_element.note_for(error)
        self._current_element.end()
        if error is not None:
            super().__exit__(kind, error, traceback)


class ElementOfErrors:
    """Attaches elements to errors of Beam's own invoker, in place of Beam's ``DataSampler``.

    Beam calls it from ``DoFnRunner._maybe_sample_exception``, once for each exception. It takes no
    other samples. Source: ``apache_beam.runners.worker.data_sampler``.
    """

    element_sampler = None  # so that operations do not sample their elements

    def initialize_samplers(self, transform_id: str, descriptor: Any, coder_factory: Any) -> None:
        """See ``DataSampler``. There is nothing to prepare."""

    def sampler_for_output(self, transform_id: str, output_index: int) -> "ElementOfErrors":
        """See ``DataSampler``."""
        return self

    def sample_exception(
        self, element: Any, exc_info: Any, transform_id: str, instruction_id: str
    ) -> None:
        """See ``OutputSampler``. Errors of timers and of life cycle methods have no element."""
        if element is not None:
            note_element(exc_info[1], element.value)
