"""Several transforms as one."""

from typing import Any

import apache_beam as beam


class Chain(beam.PTransform):  # type: ignore[misc]
    """Transforms one after the other, of which nobody else reads what is between."""

    def __init__(self, *transforms: Any) -> None:
        super().__init__()
        self._transforms = transforms

    def expand(self, collection: Any) -> Any:
        for number, transform in enumerate(self._transforms):
            collection = collection | f"{number}" >> transform
        return collection
