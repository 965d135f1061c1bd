"""Calls a user's function, or an object that calls one, with many values."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


def map_all(function: Callable[[_Value], _Result], values: Sequence[_Value]) -> list[_Result]:
    """Call a function with each value; one result for each.

    ``map`` takes a StopIteration that the function raises for the end of its input, and
    whoever makes a list of it loses values. (A comprehension does not, but takes longer where
    the function is compiled.)

    Args:
        function: called once more with a value for which it raised StopIteration, so that
            there is a traceback to show.
        values: any.

    Returns:
        The results, in the order of the values.

    Raises:
        RuntimeError: the function raised StopIteration; that is its cause.
    """
    results = list(map(function, values))
    if len(results) != len(values):  # here, too: groups are many, and calls cost
        check_all(results, function, values)
    return results


def check_all(
    results: Sequence[_Result], function: Callable[[_Value], _Result], values: Sequence[_Value]
) -> None:
    """See to it that ``map`` has not ended early. See ``map_all`` for what is raised if it has.

    Args:
        results: of each value, in order, or what stands for one.
        function: that was called with each value.
        values: all of them.
    """
    if len(results) != len(values):
        try:
            function(values[len(results)])
        except StopIteration as error:
            raise RuntimeError(f"StopIteration was raised: {error}") from error
        raise RuntimeError("StopIteration was raised")
