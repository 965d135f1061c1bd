"""A run of steps with one result for each value, as one generated function.

Between two steps that are ``Mapped``, nothing has to happen: no result is kept, examined or
unwrapped. So most chunks pass all of them in one comprehension, ``[third(second(first(value)))
for value in values]``, which saves a list, a pass over its types and a call for each step.

One of ``_EVERY`` chunks takes the steps one after the other, so that the sizes of their elements
and the limits of their chunks are sampled. So does a chunk in which a function raises an error, to
find its step and element: the functions are closed and the values immutable, so that calling them
again changes nothing. If the functions themselves take long, there is little to save, and most
chunks take the steps one after the other, too: so the times of steps are right where they matter,
and a step that is stuck is named.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.result_filter import Output
from beam_spark_runner.harness.beam.step_loops import (
    Mapped,
    MappedTuples,
    send_results_of_closed,
)
from beam_spark_runner.harness.failures import is_charged
from beam_spark_runner.harness.values.closed import Closed
from beam_spark_runner.harness.values.constants import ATOMS, Kind

_EVERY = 16
_MIN_VALUES = 32  # of a piece of a chunk: for fewer, there is little to save
_LIGHT_S = 2e-6  # of CPU time for a value and step; more makes what is saved less than a tenth
_FUSED = (Mapped, MappedTuples)


class FusedRun:
    """Processes chunks by several steps at once. Threads: the bundle's.

    Args:
        steps: The steps, at least two. Each step is the only reader of the previous one.
        counters: Counts the elements between the steps: one for each step but the last.
        states: The state samplers of the steps, which are charged in turn.
        output: Takes the results of the last step.
    """

    def __init__(
        self,
        steps: Sequence[Mapped],
        counters: Sequence[Callable[[int], None]],
        states: Sequence[Any],
        output: Output,
    ) -> None:
        self._steps, self._counters, self._states, self._output = steps, counters, states, output
        self._function = _composed(steps)
        self._chunks = 0
        self._is_light = True  # until it is tried again

    def process(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> int:
        """Process values from the start of a chunk; return how many. The steps do the others."""
        self._chunks += 1
        if not self._chunks % _EVERY:
            self._is_light = True
            return 0
        limit = min(step.limit for step in self._steps)
        if (
            not self._is_light
            or limit < min(len(values), _MIN_VALUES)
            or not (kind is Kind.PLAIN or ATOMS.issuperset(map(type, values)))
            or not all(step.closed.holds() for step in self._steps if step.closed is not None)
        ):
            return 0
        if len(values) <= 2 * limit:
            return self._run(values, origins)
        done = 0
        while done < len(values):
            end = done + limit
            count = self._run(values[done:end], origins[done:end])
            if not count:
                break
            done += count
        return done

    def _run(self, values: list[Any], origins: list[WindowedValue]) -> int:
        began_s = time.thread_time()
        try:
            with self._states[self._chunks % len(self._states)]:
                results = self._function(values)
        except Exception as error:
            if is_charged(error):  # another thread has interrupted the task, and does so once
                raise
            return 0  # the step raises it again
        spent_s = time.thread_time() - began_s
        count_of_calls = len(self._steps) * max(len(values), _MIN_VALUES)
        self._is_light = spent_s <= _LIGHT_S * count_of_calls
        for count in self._counters:
            count(len(values))
        send_results_of_closed(results, origins, self._output)
        return len(values)


def closed_of(step: object) -> Closed | None:
    """Return the closed function of a step that may be part of a run; None: it may not."""
    return step.closed if isinstance(step, Mapped) and type(step) in _FUSED else None


def _composed(steps: Sequence[Mapped]) -> Callable[[list[Any]], list[Any]]:
    """Return a function from values to the results of the last step."""
    names: dict[str, Any] = {}
    code = "value"
    for number, step in enumerate(steps):
        names[f"step{number}"], names[f"args{number}"] = step.function, step.args
        star = "*" if type(step) is MappedTuples else ""
        rest = f", *args{number}" if step.args else ""
        code = f"step{number}({star}{code}{rest})"
    function: Callable[[list[Any]], list[Any]] = eval(
        f"lambda values: [{code} for value in values]", names
    )
    return function
