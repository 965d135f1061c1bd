"""The sizes of elements that are passed on between the steps of a stage.

Beam encodes some of the elements to learn their sizes, which are a metric. Elements that stay
within the stage need not be encoded otherwise, so that one whose coder fails is no error. If an
element leaves the stage, its coder fails there.
"""

from collections.abc import Iterable
from typing import Any

from apache_beam.runners.worker import operations


class KnownSizes:
    """Takes the place of a coder that measures elements; fails for none.

    Args:
        coder: The coder, Beam's ``CoderImpl``.
    """

    def __init__(self, coder: Any) -> None:
        self._coder = coder

    def get_estimated_size_and_observables(self, element: Any) -> tuple[int | None, Any]:
        """Return Beam's estimate; None, which Beam does not count, if there is no size."""
        try:
            estimate: tuple[int, Any] = self._coder.get_estimated_size_and_observables(element)
        except Exception:
            return None, ()
        return estimate


def need_no_sizes(steps: Iterable[operations.Operation]) -> None:
    """Have no step fail because elements cannot be measured."""
    for step in steps:
        for receiver in step.receivers:
            counters = receiver.opcounter
            counters.coder_impl = KnownSizes(counters.coder_impl)
