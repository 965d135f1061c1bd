"""What waits for the results of several futures.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable
from typing import Any

from beam_spark_runner.transforms.declarative.named import name_of
from beam_spark_runner.transforms.declarative.returned import check_callable


class Combination:
    """Gathers the results of several futures.

    Args:
        size: The number of futures.
        complete: Called with the results once all have come.
    """

    def __init__(self, size: int, complete: Callable[[list[Any]], None]) -> None:
        self._complete = complete
        self._missing = size
        self._results: list[Any] = [None] * size

    def take(self, place: int, value: Any) -> None:
        self._results[place] = value
        self._missing -= 1
        if not self._missing:
            self._complete(self._results)


class Part:
    """One of the futures of a combination."""

    def __init__(self, combination: Combination, place: int) -> None:
        self._combination, self._place = combination, place

    def run(self, value: Any) -> None:
        self._combination.take(self._place, value)

    def described(self) -> None:
        """See ``Continuation``."""


class Spread:
    """A function of several arguments as one of a list of them."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        check_callable(fn)
        self._fn = fn
        self.__qualname__ = name_of(fn)  # by which errors name it

    def __call__(self, values: list[Any]) -> Any:
        return self._fn(*values)
