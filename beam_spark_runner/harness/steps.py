"""What a ParDo does to a list of values: the loops of ``ChunkedParDo``, without its bookkeeping.

A step gets values with their origins (the windowed values that give each its timestamp,
windows and pane; parallel lists) and sends results with theirs in the same shape. A result
waits for others only if it is a constant (``constants``): every other one is processed further
before the function runs on, as in Beam's own harness, since user code may change it then.
"""

import dis
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, GeneratorType
from typing import Any, Protocol, TypeAlias

import apache_beam as beam
from apache_beam.transforms import core
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.harness.constants import ATOMS, is_constant
from beam_spark_runner.harness.settling import Output, SendOne, Settling
from beam_spark_runner.harness.window_assignment import Assignment


class Step(Protocol):
    """One step over values."""

    limit: int  # results that wait for each other, as far as the step can choose

    def run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        """Process all values, at least one. Constants among the results wait for each other."""
        ...

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """Return what processes one value, and sends each result before the next is made."""
        ...


class Mapped:
    """``beam.Map``, or what else gives one result for each value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.limit = 1

    def run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        """See ``Step.run``."""
        limit = self.limit
        if len(values) <= 2 * limit:
            self._run(values, origins, output)
            return
        for start in range(0, len(values), limit):
            end = start + limit
            self._run(values[start:end], origins[start:end], output)

    def _run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        rest = iter(values)
        settling = Settling(output, lambda: origins[-1 - operator.length_hint(rest)])
        settled = self._settled(rest, settling.settle)
        if waiting := settling.waiting(settled):
            origins = settling.origins_of_waiting(settled, origins)
            output.send(waiting, origins, are_values=settling.are_values)

    def _settled(self, values: Iterator[Any], settle: Callable[[Any], Any]) -> list[Any]:
        function = self._function
        # As ``Settling.settled``. Not with ``map``, which would just end where the function
        # raises StopIteration.
        return [
            result
            if type(result) in ATOMS
            or (
                type(result) is tuple
                and len(result) == 2
                and (type(result[0]) in ATOMS or is_constant(result[0]))
                and (type(result[1]) in ATOMS or is_constant(result[1]))
            )
            else settle(result)
            for value in values
            for result in [function(value)]
        ]

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""
        function = self._function
        return lambda value, origin: send_one(function(value), origin)


class MappedTuples(Mapped):
    """``beam.MapTuple``: a value's parts are the arguments."""

    def _settled(self, values: Iterator[Any], settle: Callable[[Any], Any]) -> list[Any]:
        function = self._function
        return [
            result if type(result) in ATOMS else settle(result)
            for value in values
            for result in [function(*value)]
        ]

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

    def __init__(self, apply: Callable[[Any], Any], *, makes_lists: bool) -> None:
        super().__init__(lambda pair: (pair[0], apply(pair[1])))
        self._apply = apply
        self._makes_lists = makes_lists

    def _settled(self, values: Iterator[Any], settle: Callable[[Any], Any]) -> list[Any]:
        apply, makes_lists = self._apply, self._makes_lists
        return [
            (key, made)
            if type(made) in ATOMS
            or (makes_lists and type(made) is list and len(made) == 1 and is_constant(made[0]))
            else settle((key, made))
            for key, parts in values
            for made in [apply(parts)]
        ]


class Filtering:
    """``beam.Filter``: the values for which the predicate holds."""

    limit = 1  # there is no choice: results are never more than values

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        """See ``Step.run``. Values that have waited for this step may wait for the next one."""
        predicate = self._predicate
        holds = [predicate(value) for value in values]
        results = list(itertools.compress(values, holds))
        if len(results) == len(values):
            output.send(values, origins, are_values=True)
        elif results:
            output.send(results, list(itertools.compress(origins, holds)), are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            if self._predicate(value):
                send_one(value, origin)

        return run_one


class AssigningWindows:
    """``beam.WindowInto``: the values as they are, in other windows."""

    limit = 1  # there is no choice

    def __init__(self, window_fn: WindowFn) -> None:
        self._assignment = Assignment(window_fn)

    def run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        """See ``Step.run``. Values that have waited for this step may wait for the next one."""
        windows_of = self._assignment.windows_of
        assigned = [
            WindowedValue(value, origin.timestamp, windows_of(value, origin, window))
            for value, origin in zip(values, origins, strict=True)
            for window in origin.windows
        ]
        if len(assigned) != len(values):  # as Beam has it: once for each window that it was in
            values = [element.value for element in assigned]
        output.send(values, assigned, are_values=True)

    def one_by_one(self, send_one: SendOne) -> SendOne:
        """See ``Step.one_by_one``."""

        def run_one(value: Any, origin: WindowedValue) -> None:
            for window in origin.windows:
                windows = self._assignment.windows_of(value, origin, window)
                send_one(value, WindowedValue(value, origin.timestamp, windows))

        return run_one


_FEW = 8
"""Results of one call, up to which a plain loop costs less than a list of their own."""


class Calling:
    """Any ``process``: no result, a list, or an iterable that makes its results as they are read.

    At most ``limit`` results are read ahead from an iterable, and none from a generator that
    has a ``with`` statement: what it yields may need a resource that it closes.

    Args:
        process: the function.
        refuses_text: whether a string or a dict instead of an iterable of results is an error.
    """

    def __init__(self, process: Callable[[Any], Any], *, refuses_text: bool = False) -> None:
        self._process = process
        self._refuses_text = refuses_text
        self._code: CodeType | None = None  # of the last generator
        self._reads_ahead = True  # from such generators
        self.limit = 1

    def run(self, values: list[Any], origins: list[WindowedValue], output: Output) -> None:
        """See ``Step.run``."""
        waiting: list[Any] = []
        ends: list[int] = []  # where each input's results end in ``waiting``
        first = position = 0  # the input that ``ends`` begins with, and the one under way
        settling = Settling(output, lambda: origins[position])

        def flush() -> None:
            nonlocal waiting, ends
            if waiting:
                repeated = _repeated(origins, first, ends)
                output.send(waiting, repeated, are_values=settling.are_values)
            waiting, ends = [], []

        def settle_few(results: Iterable[Any]) -> bool:
            """Settle the first results without what a list of their own costs.

            Returns:
                Whether there may be more.
            """
            left = _FEW
            for result in results:
                # As ``Settling.settled``.
                if type(result) in ATOMS or (
                    type(result) is tuple
                    and len(result) == 2
                    and type(result[0]) in ATOMS
                    and type(result[1]) in ATOMS
                ):
                    waiting.append(result)
                else:
                    settling.settle_into(waiting, result)
                left -= 1
                if not left:
                    return True
            return False

        for position, value in enumerate(values):
            results = self._call(value)
            if type(results) is list:
                if len(results) <= _FEW:
                    settle_few(results)
                else:
                    waiting += settling.waiting(settling.settled(results))
            elif results is not None and self._may_read_ahead(results):
                more = iter(results)
                goes_on = len(waiting) + _FEW > self.limit or settle_few(more)
                while goes_on:
                    room = max(1, self.limit - len(waiting))  # sending may lower the limit
                    taken = settling.settled(itertools.islice(more, room))
                    waiting += settling.waiting(taken)
                    goes_on = len(taken) == room
                    if goes_on and len(waiting) >= self.limit:
                        ends.append(len(waiting))
                        flush()
                        first = position
            elif results is not None:
                for result in results:
                    output.send_one(result, origins[position])
            ends.append(len(waiting))
            if len(waiting) >= self.limit:
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
        """Raise what Beam raises; it looks at no more than the first call's results, either."""
        self._refuses_text = False
        if isinstance(results, (str, bytes, dict)):
            raise TypeError(
                f"Returning a {type(results).__name__} from a ParDo or FlatMap is not allowed. "
                f"Please use list({text_of(results)}) if you really want this behavior."
            )

    def _may_read_ahead(self, results: Any) -> bool:
        if type(results) is not GeneratorType:
            return True
        if results.gi_code is not self._code:
            self._code = results.gi_code
            self._reads_ahead = not _has_with(results.gi_code)
        return self._reads_ahead


def _has_with(code: CodeType) -> bool:
    return any(each.opname in _WITH_OPERATIONS for each in dis.get_instructions(code))


_WITH_OPERATIONS = ("SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL")
"""Of Python 3.10, of 3.11 to 3.13, and of later versions."""


def _repeated(origins: list[WindowedValue], first: int, ends: list[int]) -> list[WindowedValue]:
    """``origins[first + i]`` for each result before ``ends[i]`` and after ``ends[i - 1]``."""
    count = len(ends)
    if ends == _EACH_ONE[:count]:
        return origins[first : first + count]
    repeated: list[WindowedValue] = []
    before = 0
    for position, end in enumerate(ends, first):
        if end - before == 1:
            repeated.append(origins[position])
        elif end > before:
            repeated += [origins[position]] * (end - before)
        before = end
    return repeated


_EACH_ONE = list(range(1, 4096))


def step_for(
    fn: beam.DoFn, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Step:
    """Choose the loop for a DoFn whose ``process`` takes the element and what is always the same.

    Beam makes a FlatMap of what ``Map`` is given, whose function returns lists of one. It is
    known by its code, and the function that it calls is found in its closure.
    """
    process = fn.process
    more = kwargs or {}
    if isinstance(fn, core.CallableWrapperDoFn) and hasattr(process, "__code__"):
        make = _loops().get(process.__code__)
        if make is not None:
            cells = dict(zip(process.__code__.co_freevars, process.__closure__ or (), strict=True))
            return make(_bound(cells["fn"].cell_contents, args, more))
    # A function of FlatMap may well return a string: it means the letters.
    is_users_class = not isinstance(fn, core.CallableWrapperDoFn)
    return Calling(_bound(process, args, more), refuses_text=is_users_class)


def _bound(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    if not args and not kwargs:
        return function
    return lambda value: function(value, *args, **kwargs)


_Loop: TypeAlias = Callable[[Callable[..., Any]], Step]


@functools.cache
def _loops() -> dict[CodeType, _Loop]:
    """The functions that Beam makes, by their code."""

    def code(transform: beam.ParDo) -> CodeType:
        made: CodeType = transform.fn.process.__code__
        return made

    # Beam makes one kind of function of those that could take side inputs, and another.
    return {
        code(beam.Map(lambda value: value)): Mapped,
        code(beam.Map(lambda *values: values)): Mapped,
        code(beam.MapTuple(lambda value: value)): MappedTuples,
        code(beam.MapTuple(lambda *values: values)): MappedTuples,
        code(beam.Filter(lambda value: value)): Filtering,
        code(beam.Filter(lambda *values: values)): Filtering,
    }
