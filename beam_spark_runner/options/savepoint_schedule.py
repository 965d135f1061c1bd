"""``--savepoint_every``, ``--savepoint_keep`` and ``--savepoint_dir``."""

from dataclasses import dataclass
from typing import Any

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.values import checkpoint_folder, positive, positive_seconds

DEFAULT_KEEP = 3
MAX_KEPT = 1_000_000


@dataclass(frozen=True, slots=True)
class SavepointSchedule:
    """When a streaming pipeline makes savepoints of itself.

    Attributes:
        folder: The folder or URL in which each has its own folder.
        every_s: The time between two of them, in seconds.
        keep: How many are kept.
    """

    folder: str
    every_s: float
    keep: int = DEFAULT_KEEP


def savepoint_schedule(values: Any) -> SavepointSchedule | None:
    """Read the options; None: there is no schedule.

    Raises:
        OptionsError: One of them is wrong, or of no use without another one.
    """
    folder = checkpoint_folder("savepoint_dir", getattr(values, "savepoint_dir", None))
    every = getattr(values, "savepoint_every", None)
    keep = positive("savepoint_keep", getattr(values, "savepoint_keep", None), MAX_KEPT)
    if every is None:
        for option, value in (("savepoint_dir", folder), ("savepoint_keep", keep)):
            if value is not None:
                raise OptionsError(option, "has no effect unless --savepoint_every is set")
        return None
    if folder is None:
        raise OptionsError(
            "savepoint_every", "needs a --savepoint_dir, in which each savepoint has its own folder"
        )
    every_s = positive_seconds("savepoint_every", every)
    return SavepointSchedule(folder, every_s, keep or DEFAULT_KEEP)
