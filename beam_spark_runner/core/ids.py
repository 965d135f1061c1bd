"""Identifiers. All of them are opaque: their text has no meaning."""

from typing import NamedTuple, NewType

TransformId = NewType("TransformId", str)
"""The key of a transform in ``Components.transforms``. Copies that a pass makes get new ones."""


class TimerFamilyId(NamedTuple):
    """The id of a timer family, as in the Fn API."""

    transform: TransformId
    family: str


PCollectionId = NewType("PCollectionId", str)
CoderId = NewType("CoderId", str)
WindowingId = NewType("WindowingId", str)
EnvironmentId = NewType("EnvironmentId", str)

StageId = NewType("StageId", int)
"""The number of a stage, its key in ``Plan.stages``."""
DestinationId = NewType("DestinationId", int)
"""The number of a destination, in the ``dest`` column of rows. 0 is reserved for control rows."""
SegmentId = NewType("SegmentId", int)
"""The number of a segment, its index in ``Plan.segments``."""
