"""The loop over values of a DoFn's ``process``, see ``steps``."""

import itertools
from collections.abc import Callable, Generator, Iterator
from types import CodeType, GeneratorType
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.harness.beam.current_element import CurrentElement
from beam_spark_runner.harness.beam.held_open import has_with, has_yield_from, yields_from_with
from beam_spark_runner.harness.beam.result_filter import Output, ResultFilter, SendOne
from beam_spark_runner.harness.values.constants import ATOMS, Kind

_FEW = 8
"""The number of results of a call up to which a plain loop costs less than a separate list."""


class ProcessLoop:
    """The loop for any ``process``, which returns None, a list, or a lazy iterable.

    At most ``limit`` results are read ahead from an iterable, and none while a generator is in a
    function with a ``with`` statement: its results may need a resource that it closes.

    Args:
        process: The function.
        refuses_text: Whether it is an error to return a string or a dict instead of an iterable
            of results.
    """

    def __init__(self, process: Callable[[Any], Any], *, refuses_text: bool = False) -> None:
        self._process = process
        self._refuses_text = refuses_text
        self._code: CodeType | None = None  # of the generator that was looked at last
        self._is_held = self._delegates = False
        self.limit = 1
        self.current_element = CurrentElement()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        process = self._call if self._refuses_text else self._process
        batch: list[Any] = []
        ends: list[int] = []  # where each input's results end in ``batch``
        first = position = 0  # the input that ``ends`` begins with, and the current one
        result_filter = ResultFilter(output, lambda: origins[position])
        settle_into = result_filter.settle_into

        def flush() -> None:
            nonlocal batch, ends
            if batch:
                repeated = _repeated(origins, first, ends)
                output.send(
                    batch, repeated, result_filter.kind, are_values=result_filter.are_values
                )
            batch, ends = [], []

        for position, value in enumerate(self.current_element.iterate(values)):
            results = process(value)
            if results is None:
                pass
            elif type(results) is list:
                for result in results:
                    if type(result) not in ATOMS:
                        batch += result_filter.waiting(result_filter.settled(results))
                        break
                else:
                    batch += results
            elif type(results) is GeneratorType and self._has_with(results.gi_code):
                for result in results:
                    output.send_one(result, origins[position])
            else:
                more = iter(results)
                if self._delegates and type(results) is GeneratorType:
                    more = _without_held(results, origins[position], output)
                may_have_more = True
                few_left = _FEW
                for result in more:
                    # As ``ResultFilter.settled``.
                    if type(result) in ATOMS or (
                        type(result) is tuple
                        and len(result) == 2
                        and type(result[0]) in ATOMS
                        and type(result[1]) in ATOMS
                    ):
                        batch.append(result)
                    else:
                        settle_into(batch, result)
                    few_left -= 1
                    if not few_left or len(batch) >= self.limit:
                        break
                else:
                    may_have_more = False
                while may_have_more:
                    if len(batch) >= self.limit:
                        ends.append(len(batch))
                        flush()
                        first = position
                    room = max(1, self.limit - len(batch))  # sending may lower the limit
                    chunk = result_filter.settled(itertools.islice(more, room))
                    batch += result_filter.waiting(chunk)
                    may_have_more = len(chunk) == room
            ends.append(len(batch))
            if len(batch) >= self.limit:
                flush()
                first = position + 1
        flush()

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            results = self._call(value)
            if results is not None:
                for result in results:
                    send_one(result, origin)

        return run_one

    def _call(self, value: Any) -> Any:
        results = self._process(value)
        if self._refuses_text:
            self._refuse_text(results)
        return results

    def _refuse_text(self, results: Any) -> None:
        """Raise Beam's error; like Beam, check the first call's results only."""
        self._refuses_text = False
        if isinstance(results, (str, bytes, dict)):
            raise TypeError(
                f"Returning a {type(results).__name__} from a ParDo or FlatMap is not allowed. "
                f"Please use list({text_of(results)}) if you really want this behavior."
            )

    def _has_with(self, code: CodeType) -> bool:
        if code is not self._code:
            self._code, self._is_held, self._delegates = code, has_with(code), has_yield_from(code)
        return self._is_held


def _without_held(results: Generator[Any], origin: WindowedValue, output: Output) -> Iterator[Any]:
    """Return the results of a generator, except for those that are sent since they may not wait."""
    for result in results:
        if yields_from_with(results):
            output.send_one(result, origin)
        else:
            yield result


def _repeated(origins: list[WindowedValue], first: int, ends: list[int]) -> list[WindowedValue]:
    """Repeat ``origins[first + i]`` for each result from ``ends[i - 1]`` to before ``ends[i]``."""
    count = len(ends)
    if ends == _EACH_ONE[:count]:
        return origins[first : first + count]
    repeated: list[WindowedValue] = []
    start = 0
    for position, end in enumerate(ends, first):
        if end - start == 1:
            repeated.append(origins[position])
        elif end > start:
            repeated += [origins[position]] * (end - start)
        start = end
    return repeated


_EACH_ONE = list(range(1, 4096))
