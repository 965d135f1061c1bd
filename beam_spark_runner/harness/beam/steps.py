"""What a ParDo does to a list of values: the loops of ``ChunkedParDo``, without its bookkeeping.

A step gets values with their origins (the windowed values that give each its timestamp,
windows and pane; parallel lists) and sends results with theirs in the same shape. A result
waits for others only if user code cannot change it any more (``constants``, ``closed``): every
other one is processed further before the function runs on, as in Beam's own harness.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from apache_beam.transforms.window import TimestampedValue, WindowFn
from apache_beam.utils.windowed_value import WindowedValue, create

from beam_spark_runner.core.mapping import check_all
from beam_spark_runner.harness.beam.settling import Output, SendOne, Settling
from beam_spark_runner.harness.beam.under_way import UnderWay
from beam_spark_runner.harness.beam.window_assignment import Assignment
from beam_spark_runner.harness.values.closed import Closed
from beam_spark_runner.harness.values.constants import ATOMS, Kind, is_constant, may_be_shared


class Step(Protocol):
    """One step over values."""

    limit: int  # results that wait for each other, as far as the step can choose
    under_way: UnderWay  # the value of a chunk that the step processes

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """Process all values, at least one. Results that cannot change wait for each other."""
        ...

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """Return what processes one value, and sends each result before the next is made."""
        ...


class Mapped:
    """``beam.Map``, or what else gives one result for each value.

    Args:
        function: makes the result of a value and ``args``.
        args: the same for all values.
        closed: set if nobody but its caller refers to a result of the function.
    """

    _unseen = Kind.PLAIN  # of results that may wait without a look at all of their parts

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        closed: Closed | None = None,
    ) -> None:
        self._function = function
        self._args = args
        self._closed = closed
        self.limit = 1
        self.under_way = UnderWay()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        limit = self.limit
        run = self._run_closed if _keeps_none(self._closed, values, kind) else self._run
        if len(values) <= 2 * limit:
            run(values, origins, output)
            return
        for start in range(0, len(values), limit):
            end = start + limit
            run(values[start:end], origins[start:end], output)

    def _run_closed(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        results = self._results(values)
        types = set(map(type, results))
        kind = Kind.PLAIN if types <= ATOMS else Kind.NEW
        output.send(results, origins, kind, are_values=TimestampedValue not in types)

    def _run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        rest = self.under_way.iterate(values)
        settling = Settling(output, lambda: origins[-1 - operator.length_hint(rest)], self._unseen)
        settled = self._settled(rest, settling)
        check_all(settled, self._call, values)
        if waiting := settling.waiting(settled):
            origins = settling.origins_of_waiting(settled, origins)
            output.send(waiting, origins, settling.kind, are_values=settling.are_values)

    # Where there are no arguments, a comprehension calls the function in less time than ``map``.

    def _results(self, values: list[Any]) -> list[Any]:
        if self._args:
            results = list(self._mapped(self.under_way.iterate(values)))
            check_all(results, self._call, values)
            return results
        function = self._function
        return [function(value) for value in self.under_way.iterate(values)]

    def _settled(self, values: Iterator[Any], settling: Settling) -> list[Any]:
        if self._args:
            return settling.settled(self._mapped(values))
        function, settle = self._function, settling.settle
        # As ``Settling.settled``.
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
        """Make the results one by one; ends early where the function raises StopIteration."""
        return map(self._function, values, *map(itertools.repeat, self._args))

    def _call(self, value: Any) -> Any:
        return self._function(value, *self._args)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""
        function, args = self._function, self._args
        if not args:
            return lambda value, origin: send_one(function(value), origin)
        return lambda value, origin: send_one(function(value, *args), origin)


def _keeps_none(closed: Closed | None, values: list[Any], kind: Kind) -> bool:
    """Whether a function is closed, and values are of builtin types, as a quick look shows."""
    return (
        closed is not None
        and closed.holds()
        and (kind in (Kind.PLAIN, Kind.NEW) or ATOMS.issuperset(map(type, values)))
    )


class MappedTuples(Mapped):
    """``beam.MapTuple``: a value's parts are the arguments."""

    def _results(self, values: list[Any]) -> list[Any]:
        results = list(itertools.starmap(self._function, self.under_way.iterate(values)))
        check_all(results, self._call, values)
        return results

    def _settled(self, values: Iterator[Any], settling: Settling) -> list[Any]:
        return settling.settled(itertools.starmap(self._function, values))

    def _call(self, value: Any) -> Any:
        return self._function(*value)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""
        function = self._function
        return lambda value, origin: send_one(function(*value), origin)


class Combined(Mapped):
    """What a CombineFn makes of the second part of each pair, by its key.

    Keys go over as they are: those of values that have waited for this step may go on waiting.

    Args:
        apply: makes an accumulator, or an output.
        makes_lists: whether each accumulator is a new list, as of Beam's wrapper of functions:
            then it may wait if what is in it may.
    """

    _unseen = Kind.OWN

    def __init__(self, apply: Callable[[Any], Any], *, makes_lists: bool) -> None:
        super().__init__(lambda pair: (pair[0], apply(pair[1])))
        self._apply = apply
        self._makes_lists = makes_lists

    def _settled(self, values: Iterator[Any], settling: Settling) -> list[Any]:
        apply, makes_lists, settle = self._apply, self._makes_lists, settling.settle
        return [
            (key, made)
            if type(made) in ATOMS
            or (
                makes_lists
                and type(made) is list
                and len(made) == 1
                and (type(made[0]) in ATOMS or is_constant(made[0]))
            )
            else settle((key, made))
            for key, parts in values
            for made in [apply(parts)]
        ]


class Filtering:
    """``beam.Filter``: the values for which the predicate holds.

    Args:
        predicate: of a value.
        closed: set if the predicate keeps no reference to a value.
    """

    limit = 1  # there is no choice: results are never more than values

    def __init__(self, predicate: Callable[[Any], Any], closed: Closed | None = None) -> None:
        self._predicate = predicate
        self._closed = closed
        self.under_way = UnderWay()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``. Values go on as they have come, at once where that is the same."""
        if not (_keeps_none(self._closed, values, kind) or may_be_shared(values, kind)):
            _run_each(self, values, origins, output)
            return
        predicate = self._predicate
        holds = [predicate(value) for value in self.under_way.iterate(values)]
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


class Making:
    """A ``process`` to whose results nobody else refers, as DoFns of this package say of theirs.

    Such results may wait for each other, even if they could be changed.

    Args:
        process: returns an iterable of results that are values.
    """

    def __init__(self, process: Callable[[Any], Iterable[Any]]) -> None:
        self._process = process
        self.limit = 1
        self.under_way = UnderWay()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``."""
        for position, value in enumerate(self.under_way.iterate(values)):
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
    """``beam.WindowInto``: the values as they are, in other windows."""

    limit = 1  # there is no choice

    def __init__(self, window_fn: WindowFn) -> None:
        self._assignment = Assignment(window_fn)
        self._is_beams = type(window_fn).__module__ == WindowFn.__module__  # it keeps no value
        self.under_way = UnderWay()

    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        """See ``Step.run``. Values go on as they have come, at once where that is the same."""
        # Beam has a value once for each window that it was in.
        come_once = all(len(origin.windows) == 1 for origin in origins)
        if not ((self._is_beams and come_once) or may_be_shared(values, kind)):
            _run_each(self, values, origins, output)
            return
        windows_of = self._assignment.windows_of
        assigned = [
            create(value, origin.timestamp_micros, windows_of(value, origin, window))
            for value, origin in zip(self.under_way.iterate(values), origins, strict=True)
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
    for value, origin in zip(step.under_way.iterate(values), origins, strict=True):
        run_one(value, origin)
