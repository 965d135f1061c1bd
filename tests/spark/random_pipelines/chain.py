"""Several transforms as one."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue


class Chain(beam.PTransform):  # type: ignore[misc]
    """Transforms one after the other, of which nobody else reads what is between."""

    def __init__(self, *transforms: Any) -> None:
        super().__init__()
        self._transforms = transforms

    def expand(self, collection: Any) -> Any:
        for number, transform in enumerate(self._transforms):
            collection = collection | f"{number}" >> transform
        return collection


def without_pane() -> beam.ParDo:
    """Return a step after which elements are at the end of their windows, and are no panes."""
    return beam.ParDo(_at_the_end)


def _at_the_end(element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[WindowedValue]:
    yield WindowedValue(element, window.max_timestamp(), (window,))
