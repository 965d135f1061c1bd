"""What a ParDo does to a list of values: the loops of ``ChunkedParDo``, without its bookkeeping.

A step takes values with their origins (the windowed values that give each its timestamp,
windows and pane; parallel lists) and yields pieces of the same shape: results with theirs.
"""

import copy
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Protocol, TypeAlias

import apache_beam as beam
from apache_beam.transforms import core
from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows, WindowFn
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.harness.opaque import is_opaque

_LOGGER = logging.getLogger(__name__)
_TRIALS = 16  # calls and results

Piece: TypeAlias = tuple[list[Any], list[WindowedValue]]


class Step(Protocol):
    """One step over a list of values."""

    limit: int  # results per piece, as far as the step can choose

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        """Process all values, at least one. No piece is empty or touched again."""
        ...


class OnTrial:
    """Each result by itself, before the function is asked for the next: as Beam's harness does.

    Every step begins so. It stays so if the DoFn is seen to change a value after giving it
    out, which Beam forbids and its harness happens to forgive, and if it gives out objects
    that say themselves how they are pickled: their bytes tell nothing of what they hold, and
    several in memory may be too many. Else ``then`` goes on.
    """

    def __init__(
        self,
        process: Callable[[Any], Any],
        then: Step,
        step_name: str,
        *,
        refuses_text: bool = False,
    ) -> None:
        self.then = then
        self._refuses_text = refuses_text
        self._process = process
        self._step_name = step_name
        self._given: tuple[Any, Any] | None = None
        self._stays = False
        self._trials = 0

    @property
    def limit(self) -> int:
        """That of the step which goes on."""
        return self.then.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self.then.limit = limit

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        for position, (value, origin) in enumerate(zip(values, origins, strict=True)):
            if self.is_over():
                yield from self.then.pieces(values[position:], origins[position:])
                return
            results = self._process(value)
            self._trials += 1
            if self._refuses_text and isinstance(results, (str, bytes, dict)):
                # Beam's words; it asks no more than the first call, either.
                raise TypeError(
                    f"Returning a {type(results).__name__} from a ParDo or FlatMap is not allowed. "
                    f"Please use list({text_of(results)}) if you really want this behavior."
                )
            self._refuses_text = False
            results = iter(() if results is None else results)
            for result in results:
                self._look_back()
                self._trials += 1
                if not self._stays:
                    self._stays = is_opaque(result)
                    self._given = result, _snapshot(result)
                yield [result], [origin]
                if self.is_over():
                    break
            while some := list(itertools.islice(results, self.limit)):
                yield some, [origin] * len(some)

    def is_over(self) -> bool:
        """Whether ``then`` may take its place."""
        return self._trials >= _TRIALS and not self._stays

    def _look_back(self) -> None:
        """See whether the result before is still what it was."""
        if self._given is None:
            return
        now, then = self._given
        self._given = None
        if now is then:
            return
        try:
            is_changed = bool(now != then)
        except Exception:  # a comparison of the user's, or of arrays
            is_changed = True
        if is_changed:
            self._stays = True
            _LOGGER.info(
                "%s changes values after it has given them out: its elements go one by one",
                self._step_name,
            )


class Mapped:
    """``beam.Map`` and ``beam.MapTuple``: one result for each value."""

    def __init__(self, results_of: Callable[[list[Any]], list[Any]]) -> None:
        self._results_of = results_of
        self.limit = 1

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        limit = self.limit
        if len(values) <= 2 * limit:
            yield self._results_of(values), origins
            return
        for start in range(0, len(values), limit):
            end = start + limit
            yield self._results_of(values[start:end]), origins[start:end]


class Filtering:
    """``beam.Filter``: the values for which the predicate holds."""

    limit = 1  # there is no choice: results are never more than values

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        holds = list(map(self._predicate, values))
        results = list(itertools.compress(values, holds))
        if len(results) == len(values):
            yield values, origins
        elif results:
            yield results, list(itertools.compress(origins, holds))


class AssigningWindows:
    """``beam.WindowInto``: the values as they are, in other windows."""

    limit = 1  # there is no choice

    def __init__(self, window_fn: WindowFn) -> None:
        self._assignment = Assignment(window_fn)

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        windows_of = self._assignment.windows_of
        assigned = [
            WindowedValue(value, origin.timestamp, windows_of(value, origin, window))
            for value, origin in zip(values, origins, strict=True)
            for window in origin.windows
        ]
        if len(assigned) != len(values):  # as Beam has it: once for each window that it was in
            values = [element.value for element in assigned]
        yield values, assigned


class Assignment:
    """What windows a window fn assigns; asked once where many timestamps have the same."""

    def __init__(self, window_fn: WindowFn) -> None:
        self._assign = window_fn.assign
        self._period = _period_of(window_fn)
        self._windows: dict[int, Sequence[Any]] = {}  # of a period

    def windows_of(self, value: Any, origin: WindowedValue, window: Any) -> Sequence[Any]:
        """Return the windows of a value at the timestamp of its origin; now it is in ``window``."""
        if self._period is None:
            windows: Sequence[Any] = self._assign(
                WindowFn.AssignContext(origin.timestamp, value, window)
            )
            return windows
        length, offset = self._period
        place = (origin.timestamp_micros - offset) // length
        known = self._windows.get(place)
        if known is None:
            if len(self._windows) > 10_000:
                self._windows.clear()
            # A tuple: Beam may multiply what elements share.
            known = tuple(self._assign(WindowFn.AssignContext(origin.timestamp, value, window)))
            self._windows[place] = known
        return known


def _period_of(window_fn: WindowFn) -> tuple[int, int] | None:
    """Length and offset in microseconds of the periods within which the windows are the same."""
    if type(window_fn) is GlobalWindows:
        return 1 << 64, -(1 << 63)  # all of time
    if type(window_fn) is FixedWindows:
        return window_fn.size.micros, window_fn.offset.micros
    if type(window_fn) is SlidingWindows and not window_fn.size.micros % window_fn.period.micros:
        return window_fn.period.micros, window_fn.offset.micros
    return None


class Calling:
    """Any ``process``: no result, a list, or an iterable that makes its results as they are read.

    At most ``limit`` results are read ahead from an iterable.
    """

    def __init__(self, process: Callable[[Any], Any]) -> None:
        self._process = process
        self.limit = 1

    def pieces(self, values: list[Any], origins: list[WindowedValue]) -> Iterator[Piece]:
        process = self._process
        results: list[Any] = []
        ends: list[int] = []  # where each input's results end in ``results``
        first = 0  # the input that ``ends`` begins with
        for position, value in enumerate(values):
            some = process(value)
            if type(some) is list:
                results += some
            elif some is not None:
                more = iter(some)
                while True:
                    limit = self.limit
                    results += itertools.islice(more, limit - len(results))
                    if len(results) < limit:
                        break
                    ends.append(len(results))
                    yield results, _repeated(origins, first, ends)
                    results, ends, first = [], [], position
            ends.append(len(results))
            if len(results) >= self.limit:
                yield results, _repeated(origins, first, ends)
                results, ends, first = [], [], position + 1
        if results:
            yield results, _repeated(origins, first, ends)


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


def _snapshot(value: Any) -> Any:
    """A copy of what can change, as far as two levels show; the value itself where nothing can."""
    if isinstance(value, tuple) and any(isinstance(each, _MUTABLE) for each in value):
        return tuple(map(_snapshot, value))
    return copy.copy(value) if isinstance(value, _MUTABLE) else value


_MUTABLE = (list, dict, set, bytearray)


def step_for(
    fn: beam.DoFn, step_name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Step:
    """Choose the loop for a DoFn whose ``process`` takes the element and what is always the same.

    Beam makes a FlatMap of what ``Map`` is given, whose function returns lists of one. It is
    known by its code, and the function that it calls is found in its closure.
    """
    process = fn.process
    more = kwargs or {}
    call = process
    if args or more:

        def call(value: Any) -> Any:
            return process(value, *args, **more)

    step: Step = Calling(call)
    if isinstance(fn, core.CallableWrapperDoFn) and hasattr(process, "__code__"):
        make = _loops().get(process.__code__)
        if make is not None:
            cells = dict(zip(process.__code__.co_freevars, process.__closure__ or (), strict=True))
            step = make(cells["fn"].cell_contents, args, more)
    # A function of FlatMap may well return a string: it means the letters.
    is_users_class = not isinstance(fn, core.CallableWrapperDoFn)
    return OnTrial(call, step, step_name, refuses_text=is_users_class)


_Loop: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Step]


@functools.cache
def _loops() -> dict[CodeType, _Loop]:
    """The functions that Beam makes, by their code."""

    def mapping(function: Callable[..., Any], args: Any, kwargs: Any) -> Step:
        if kwargs:
            return Mapped(lambda values: [function(value, *args, **kwargs) for value in values])
        return Mapped(lambda values: list(map(function, values, *map(itertools.repeat, args))))

    def mapping_tuples(function: Callable[..., Any], *_: Any) -> Step:
        # With arguments Beam makes a function of another code.
        return Mapped(lambda values: list(itertools.starmap(function, values)))

    def filtering(function: Callable[..., Any], args: Any, kwargs: Any) -> Step:
        if args or kwargs:
            return Filtering(lambda value: function(value, *args, **kwargs))
        return Filtering(function)

    def code(transform: beam.ParDo) -> CodeType:
        made: CodeType = transform.fn.process.__code__
        return made

    # Beam makes one kind of function of those that could take side inputs, and another.
    return {
        code(beam.Map(lambda value: value)): mapping,
        code(beam.Map(lambda *values: values)): mapping,
        code(beam.MapTuple(lambda value: value)): mapping_tuples,
        code(beam.MapTuple(lambda *values: values)): mapping_tuples,
        code(beam.Filter(lambda value: value)): filtering,
        code(beam.Filter(lambda *values: values)): filtering,
    }
