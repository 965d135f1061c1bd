"""The latest epochs of a streaming pipeline, and how long their parts took."""

from collections import deque
from dataclasses import dataclass

from beam_spark_runner.observing.epoch_status import EpochPart, EpochStatus

MAX_EPOCHS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEpoch:
    """An epoch that is committed.

    Attributes:
        epoch: The number of the epoch.
        clock_us: The processing time of the epoch, microseconds since the Unix epoch.
        parts_us: How long its parts took, in the order of ``EpochPart``.
    """

    epoch: int
    clock_us: int
    parts_us: tuple[int, ...]

    @property
    def took_us(self) -> int:
        """The time from the beginning of the epoch to the end of its commit."""
        return sum(self.parts_us)


class EpochHistory:
    """The latest epochs. Threads: one calls ``note``, any may call ``latest``.

    Example:
        >>> history = EpochHistory()
        >>> history.note(EpochStatus(epoch=7, parts_us={EpochPart.COMMIT: 20}))
        >>> history.latest()
        (PastEpoch(epoch=7, clock_us=0, parts_us=(0, 0, 0, 20)),)
    """

    def __init__(self) -> None:
        self._epochs: deque[PastEpoch] = deque(maxlen=MAX_EPOCHS)

    def note(self, status: EpochStatus) -> None:
        """Record an epoch that is committed."""
        self._epochs.append(
            PastEpoch(
                epoch=status.epoch,
                clock_us=status.clock_us,
                parts_us=tuple(status.parts_us.get(part, 0) for part in EpochPart),
            )
        )

    def latest(self) -> tuple[PastEpoch, ...]:
        """Return the latest epochs, the newest last."""
        return tuple(self._epochs)  # one call, which no other thread interrupts
