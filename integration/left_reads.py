"""Has tasks leave reads of declarative steps for the next epoch; executors import it."""

import enum
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from beam_spark_runner.engine.stages import opening
from beam_spark_runner.harness.beam.declarative import DeclarativeParDo


class InFlight(enum.Enum):
    """What a task has come to that continues what another epoch has left, in this order."""

    CONTINUED = "the code of the records runs again, and their reads are still to be made"
    ANSWERED = "a read is made, and its callback has been called; other records wait"


_folders: set[str] = set()
_met: list[Callable[[InFlight], None]] = []
_continues = False  # what another epoch has left; of the task that runs in this process
_restore, _resume, _settle = (
    DeclarativeParDo.restore,
    DeclarativeParDo.resume,
    DeclarativeParDo.settle,
)


def leave_reads(folder: str, meets: Sequence[Callable[[InFlight], None]] = ()) -> None:
    """Have all tasks of this process leave reads once they have made one, from now on.

    Args:
        folder: gets a file for each task that continues such reads.
        meets: called whenever a task comes to an event.
    """
    if not _folders:
        mock.patch.object(
            opening, "_leaves_after_us", lambda context: None if context.task.epoch.drains else 0
        ).start()
        for name, replacement in (
            ("restore", _restored),
            ("resume", _resumed),
            ("settle", _settled),
        ):
            mock.patch.object(DeclarativeParDo, name, replacement).start()
    _folders.add(folder)
    _met[:] = meets


def _meet(event: InFlight) -> None:
    if _continues:
        for each in _met:
            each(event)


def _restored(step: DeclarativeParDo, records: Sequence[bytes]) -> None:
    global _continues
    for folder in _folders:
        Path(folder, f"{os.getpid()}-{uuid.uuid4().hex}").write_text(f"{len(records)}")
    _restore(step, records)
    _continues = bool(records)
    _meet(InFlight.CONTINUED)


def _resumed(step: DeclarativeParDo, *arguments: Any) -> None:
    _resume(step, *arguments)
    _meet(InFlight.ANSWERED)


def _settled(step: DeclarativeParDo) -> Any:
    global _continues
    settled = _settle(step)
    _continues = False
    return settled


def continued(folder: Path) -> int:
    """Return how many records were continued, those of tasks that were repeated among them."""
    return sum(int(each.read_text() or "0") for each in folder.iterdir())
