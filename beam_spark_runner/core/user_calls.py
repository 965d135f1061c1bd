"""Calls a user's function, or an object that calls one, with many values."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


def map_all(function: Callable[[_Value], _Result], values: Sequence[_Value]) -> list[_Result]:
    """Call a function with each value, and return one result for each.

    If the function raises StopIteration, ``map`` ends as if its input had ended, and
    values are lost. (A comprehension does not do so, but is slower if the function is
    compiled.)

    Args:
        function: The function. It is called again with a value for which it raised
            StopIteration, to get a traceback.
        values: The values.

    Returns:
        The results, in the order of the values.

    Raises:
        RuntimeError: The function raised StopIteration, which is the cause.
    """
    results = list(map(function, values))
    if len(results) != len(values):  # tested here, too, to save a call for each of many groups
        check_all(results, function, values)
    return results


def check_all(
    results: Sequence[_Result], function: Callable[[_Value], _Result], values: Sequence[_Value]
) -> None:
    """Check that ``map`` has not ended early; else raise an error as ``map_all`` does.

    Args:
        results: One item for each value for which there is a result, in order.
        function: The function that was called with each value.
        values: All values.
    """
    if len(results) != len(values):
        try:
            function(values[len(results)])
        except StopIteration as error:
            raise RuntimeError(f"StopIteration was raised: {error}") from error
        raise RuntimeError("StopIteration was raised")
