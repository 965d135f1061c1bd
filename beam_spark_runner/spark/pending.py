"""What splittable DoFns have deferred, told by tasks that still run.

Best effort: small files in the folder that driver and workers share; nothing where there is
none. Nothing that decides results goes this way.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.state.residuals import MAX_US

_EVERY_S = 0.5
_FOLDER = "pending"


class Pending(NamedTuple):
    """Of one step: how many residuals wait, and the event time that they hold, microseconds."""

    number: int = 0
    hold_us: int = MAX_US

    def with_others(self, others: "Pending") -> "Pending":
        return Pending(self.number + others.number, min(self.hold_us, others.hold_us))


class PendingFile:
    """Where one task tells. Threads: the bundle's."""

    def __init__(self, folder: str | None, task: str) -> None:
        self._path = None if folder is None else Path(folder, _FOLDER, f"{task}.json")
        self._next_s = 0.0
        self._exists = False

    def tell(self, pending: Mapping[TransformId, Pending], then_waits_us: int) -> None:
        """Write it down now and then, and before a long wait. ``pending``: by transform."""
        if self._path is None:
            return
        if time.monotonic() < self._next_s and then_waits_us < _EVERY_S * 1e6:
            return
        self._next_s = time.monotonic() + _EVERY_S
        written = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # the folder may have gone, with the job
            self._path.parent.mkdir(exist_ok=True)
            written.write_text(json.dumps(pending))
            os.replace(written, self._path)
            self._exists = True

    def close(self) -> None:
        """Take it back: the task ends."""
        if self._exists and self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


def read_pending(folder: str | None) -> dict[TransformId, Pending]:
    """Add up what all tasks have told, by transform."""
    found: dict[TransformId, Pending] = {}
    if folder is None:
        return found
    for path in Path(folder, _FOLDER).glob("*.json"):
        try:
            told = json.loads(path.read_text())
        except (OSError, ValueError):  # its task has ended meanwhile
            continue
        for step, (number, hold_us) in told.items():
            before = found.get(step, Pending())
            found[step] = before.with_others(Pending(number, hold_us))
    return found
