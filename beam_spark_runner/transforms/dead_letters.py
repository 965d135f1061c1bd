"""Dead letters: elements that a sink refuses, in the form that Beam's own have."""

import traceback
from typing import Any, NamedTuple

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

DEAD_LETTERS = "bad"
"""The tag of dead letters, as in ``ParDo.with_exception_handling``."""
WRITTEN = "good"
"""The tag of what else a sink emits, the same."""

Failure = tuple[type[BaseException], str, list[str]]
"""The class of an exception, its representation, and the lines of its traceback."""


class SinkOutputs(NamedTuple):
    """The result of a sink with dead letters: a pair, as that of ``ParDo`` with such.

    Attributes:
        good: The collection that the sink emits without dead letters, too.
        bad: The dead letters: pairs of an element and its ``Failure``.
    """

    good: Any
    bad: Any


def dead_letter(element: Any, error: BaseException) -> TaggedOutput:
    """Return the output of a step for an element that its sink has refused.

    Its value is a pair of the element and the failure, as in ``ParDo.with_exception_handling``.

    Args:
        element: The element.
        error: Why it was refused.
    """
    return TaggedOutput(DEAD_LETTERS, (element, failure_of(error)))


def late_dead_letter(origin: WindowedValue, error: BaseException) -> TaggedOutput:
    """Return the same for an element that is not the current one, as in ``finish_bundle``.

    Args:
        origin: The element with its timestamp and windows.
        error: Why it was refused.
    """
    return TaggedOutput(DEAD_LETTERS, origin.with_value((origin.value, failure_of(error))))


def in_global_window(element: Any) -> WindowedValue:
    """Return an element of which only the value is known."""
    return WindowedValue(element, MIN_TIMESTAMP, (GlobalWindow(),))


def failure_of(error: BaseException) -> Failure:
    """Return what a dead letter has of an exception."""
    return type(error), repr(error), traceback.format_exception(error)
