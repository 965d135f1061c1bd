"""Which sources of a streaming pipeline have held the watermark for long."""

from collections.abc import Mapping
from typing import NamedTuple

from beam_spark_runner.core.ids import TransformId

PATIENCE_S = 60.0


class _Hold(NamedTuple):
    hold_us: int
    since_s: float


class StandingWatermarks:
    """Notices holds that do not move. Each source is named once.

    Example:
        >>> standing = StandingWatermarks()
        >>> standing.after_epoch({"Read": 5}, 0.0), standing.after_epoch({"Read": 5}, 60.0)
        ([], ['Read'])
    """

    def __init__(self) -> None:
        self._holds: dict[TransformId, _Hold] = {}
        self._named: set[TransformId] = set()

    def after_epoch(self, holds_us: Mapping[TransformId, int], now_s: float) -> list[TransformId]:
        """Return the sources that are to be named now.

        Args:
            holds_us: event time that each source has held since the epoch, if it holds any.
            now_s: monotonic.
        """
        self._holds = {
            step: before
            if (before := self._holds.get(step)) is not None and before.hold_us == hold_us
            else _Hold(hold_us, now_s)
            for step, hold_us in holds_us.items()
        }
        standing = [
            step
            for step, hold in self._holds.items()
            if now_s - hold.since_s >= PATIENCE_S and step not in self._named
        ]
        self._named.update(standing)
        return standing
