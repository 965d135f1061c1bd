"""Identifiers. All of them are opaque; none carries meaning in its text."""

from typing import NamedTuple, NewType

TransformId = NewType("TransformId", str)
"""Key of ``Components.transforms``. Copies that a pass makes get a fresh one."""


class TimerFamilyId(NamedTuple):
    """Names the timer family of a transform, as the Fn API does."""

    transform: TransformId
    family: str


PCollectionId = NewType("PCollectionId", str)
CoderId = NewType("CoderId", str)
WindowingId = NewType("WindowingId", str)
EnvironmentId = NewType("EnvironmentId", str)

StageId = NewType("StageId", int)
"""Position of a stage in ``Plan.stages``."""
DestinationId = NewType("DestinationId", int)
"""What the ``dest`` column of a row says: where it is going. 0 is reserved for control rows."""
SegmentId = NewType("SegmentId", int)
"""Position of a segment in ``Plan.segments``."""
