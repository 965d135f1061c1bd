"""The loops of ``ChunkedParDo``: they apply a function to a list of values.

A step gets parallel lists of values and origins (windowed values with the timestamp, windows and
pane), and sends results in the same form. A result waits for others only if user code cannot
change it any more (``constants``, ``closed``). Every other result is passed on before the function
continues, as in Beam's own harness.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from apache_beam.transforms.window import TimestampedValue, WindowFn
from apache_beam.utils.windowed_value import WindowedValue, create
from typing_extensions import override

from beam_spark_runner.core.user_calls import check_all
from beam_spark_runner.harness.beam.current_element import CurrentElement
from beam_spark_runner.harness.beam.result_filter import Output, ResultFilter, SendOne, never_waits
from beam_spark_runner.harness.beam.window_assignment import Assignment
from beam_spark_runner.harness.values.closed import Closed
from beam_spark_runner.harness.values.constants import ATOMS, Kind, is_constant, may_be_shared

_WINDOWS, _TIMESTAMP = map(operator.attrgetter, ("windows", "timestamp_micros"))


class Step(Protocol):
    """One step that processes chunks of values."""

    limit: int  # how many results are collected for a chunk, if the step can choose
    current_element: CurrentElement  # the current value of the chunk

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """Process a chunk of at least one value. Immutable results are sent in chunks."""
        ...

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """Return a function that processes one value, and sends each result at once."""
        ...


class Mapped:
    """``beam.Map``, and other steps with one result for each value.

    Args:
        function: Returns the result of a value and ``args``.
        args: Further arguments, the same for all values.
        closed: Set if the function is closed, so that only its caller refers to its results.

    Attributes:
        function, args, closed: See above.
    """

    _unseen = Kind.PLAIN  # the kind of results that wait without being examined completely

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        closed: Closed | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.closed = closed
        self._none_waits = False  # whether all results were sent at once, the last time
        self.limit = 1
        self.current_element = CurrentElement()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        limit = self.limit
        is_closed = _keeps_none(self.closed, values, kind)
        if self._none_waits and not is_closed:
            done = self._run_singly(values, origins, output)
            values, origins = values[done:], origins[done:]
            if not values:
                return
        run = self._run_closed if is_closed else self._run
        if len(values) <= 2 * limit:
            run(values, origins, output)
            return
        for start in range(0, len(values), limit):
            end = start + limit
            run(values[start:end], origins[start:end], output)

    def _run_closed(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        send_results_of_closed(self._results(values), origins, output)

    def _run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        rest = self.current_element.iterate(values)
        result_filter = ResultFilter(
            output, lambda: origins[-1 - operator.length_hint(rest)], self._unseen
        )
        settled = self._settled(rest, result_filter)
        check_all(settled, self._call, values)
        if batch := result_filter.waiting(settled):
            origins = result_filter.origins_of_waiting(settled, origins)
            output.send(batch, origins, result_filter.kind, are_values=result_filter.are_values)
        else:
            self._none_waits = True

    def _run_singly(self, values: list[Any], origins: list[WindowedValue], output: Output) -> int:
        """Do what ``_run`` does, up to the first result that may wait.

        Returns:
            How many values it has processed.
        """
        call, send_one = self._call, output.send_one
        iterated = zip(self.current_element.iterate(values), origins, strict=True)
        for position, (value, origin) in enumerate(iterated):
            result = call(value)
            if never_waits(type(result)):  # type: ignore[arg-type]
                send_one(result, origin)
                continue
            self._none_waits = False
            result_filter = ResultFilter(
                output, partial(operator.getitem, origins, position), self._unseen
            )
            if batch := result_filter.waiting([result_filter.settle(result)]):
                kind, are_values = result_filter.kind, result_filter.are_values
                output.send(batch, [origin], kind, are_values=are_values)
            return position + 1
        return len(values)

    # Without arguments, a comprehension is faster than ``map``.

    def _results(self, values: list[Any]) -> list[Any]:
        if self.args:
            results = list(self._mapped(self.current_element.iterate(values)))
            check_all(results, self._call, values)
            return results
        function = self.function
        return [function(value) for value in self.current_element.iterate(values)]

    def _settled(self, values: Iterator[Any], result_filter: ResultFilter) -> list[Any]:
        if self.args:
            return result_filter.settled(self._mapped(values))
        function, settle = self.function, result_filter.settle
        # As ``ResultFilter.settled``.
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
            for value in values
            for result in [function(value)]
        ]

    def _mapped(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield the results; ends early if the function raises StopIteration."""
        return map(self.function, values, *map(itertools.repeat, self.args))

    def _call(self, value: Any) -> Any:
        return self.function(value, *self.args)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""
        function, args = self.function, self.args
        if not args:
            return lambda value, origin: send_one(function(value), origin)
        return lambda value, origin: send_one(function(value, *args), origin)


def _keeps_none(closed: Closed | None, values: list[Any], kind: Kind) -> bool:
    """Whether a function is closed, and values are certainly of builtin types."""
    return (
        closed is not None
        and closed.holds()
        and (kind in (Kind.PLAIN, Kind.NEW) or ATOMS.issuperset(map(type, values)))
    )


class MappedTuples(Mapped):
    """``beam.MapTuple``: the parts of a value are the arguments."""

    @override
    def _results(self, values: list[Any]) -> list[Any]:
        results = list(itertools.starmap(self.function, self.current_element.iterate(values)))
        check_all(results, self._call, values)
        return results

    @override
    def _settled(self, values: Iterator[Any], result_filter: ResultFilter) -> list[Any]:
        return result_filter.settled(itertools.starmap(self.function, values))

    @override
    def _call(self, value: Any) -> Any:
        return self.function(*value)

    @override
    def one_by_one(self, send_one: SendOne) -> SendOne:
        function = self.function
        return lambda value, origin: send_one(function(*value), origin)


class Combined(Mapped):
    """Applies a phase of a CombineFn to the second part of each pair.

    Keys are passed on unchanged, and need not be examined: keys of a chunk may wait.

    Args:
        apply: Returns an accumulator or an output.
        makes_lists: Whether each accumulator is a new list, as with Beam's wrapper of functions:
            then it may wait if its elements are immutable.
    """

    _unseen = Kind.OWN

    def __init__(self, apply: Callable[[Any], Any], *, makes_lists: bool) -> None:
        super().__init__(lambda pair: (pair[0], apply(pair[1])))
        self._apply = apply
        self._makes_lists = makes_lists

    @override
    def _settled(self, values: Iterator[Any], result_filter: ResultFilter) -> list[Any]:
        apply, makes_lists, settle = self._apply, self._makes_lists, result_filter.settle
        return [
            (key, result)
            if type(result) in ATOMS
            or (
                makes_lists
                and type(result) is list
                and len(result) == 1
                and (type(result[0]) in ATOMS or is_constant(result[0]))
            )
            else settle((key, result))
            for key, parts in values
            for result in [apply(parts)]
        ]


def send_results_of_closed(
    results: list[Any], origins: list[WindowedValue], output: Output
) -> None:
    """Send results that a closed function has made of values of builtin types."""
    types = set(map(type, results))
    kind = Kind.PLAIN if types <= ATOMS else Kind.NEW
    output.send(results, origins, kind, are_values=TimestampedValue not in types)


class Filtering:
    """``beam.Filter``: passes on the values for which the predicate holds.

    Args:
        predicate: A function of a value.
        closed: Set if the predicate is closed, so that it keeps no reference to a value.
    """

    limit = 1  # not used: results are never more than values

    def __init__(self, predicate: Callable[[Any], Any], closed: Closed | None = None) -> None:
        self._predicate = predicate
        self._closed = closed
        self.current_element = CurrentElement()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``. Values are passed on as one chunk if user code cannot change them."""
        if not (_keeps_none(self._closed, values, kind) or may_be_shared(values, kind)):
            _run_each(self, values, origins, output)
            return
        predicate = self._predicate
        holds = [predicate(value) for value in self.current_element.iterate(values)]
        results = list(itertools.compress(values, holds))
        if len(results) == len(values):
            output.send(values, origins, kind, are_values=True)
        elif results:
            output.send(results, list(itertools.compress(origins, holds)), kind, are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            if self._predicate(value):
                send_one(value, origin)

        return run_one


class NewResultsLoop:
    """The loop for DoFns of this package with ``makes_new_results``: they keep no references.

    Such results may be collected in chunks even if they are mutable.

    Args:
        process: Returns an iterable of results, none of them of the ``SPECIAL`` types.
    """

    def __init__(self, process: Callable[[Any], Iterable[Any]]) -> None:
        self._process = process
        self.limit = 1
        self.current_element = CurrentElement()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        for position, value in enumerate(self.current_element.iterate(values)):
            results = iter(self._process(value))
            while some := [*itertools.islice(results, self.limit)]:
                output.send(some, [origins[position]] * len(some), Kind.OWN, are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            for result in self._process(value):
                send_one(result, origin)

        return run_one


class AssigningWindows:
    """``beam.WindowInto``: passes values on unchanged, in other windows."""

    limit = 1  # not used

    def __init__(self, window_fn: WindowFn) -> None:
        self._assignment = Assignment(window_fn)
        # Beam's own window fns keep no reference to a value.
        self._is_beams = type(window_fn).__module__ == WindowFn.__module__
        self.current_element = CurrentElement()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``. Values are passed on as one chunk if user code cannot change them."""
        # Beam emits a value once for each window that it was in.
        come_once = set(map(len, map(_WINDOWS, origins))) == {1}
        if not ((self._is_beams and come_once) or may_be_shared(values, kind)):
            _run_each(self, values, origins, output)
            return
        if come_once:
            times_us = [*map(_TIMESTAMP, origins)]
            windows = self._assignment.windows_at_each(times_us)
            if windows is not None:
                assigned = [*map(create, values, times_us, windows)]
                output.send(values, assigned, kind, are_values=True)
                return
        windows_of = self._assignment.windows_of
        assigned = [
            create(value, origin.timestamp_micros, windows_of(value, origin, window))
            for value, origin in zip(self.current_element.iterate(values), origins, strict=True)
            for window in origin.windows
        ]
        if not come_once:
            values = [element.value for element in assigned]
        output.send(values, assigned, kind, are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            for window in origin.windows:
                windows = self._assignment.windows_of(value, origin, window)
                send_one(value, create(value, origin.timestamp_micros, windows))

        return run_one


def _run_each(step: Step, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
    run_one = step.one_by_one(output.send_one)
    for value, origin in zip(step.current_element.iterate(values), origins, strict=True):
        run_one(value, origin)
