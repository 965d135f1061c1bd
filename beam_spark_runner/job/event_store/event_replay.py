"""Reads the states and messages that earlier starts of a job have recorded."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import BinaryIO

from beam_spark_runner.job.event_store.event_files import folder_of_events, in_order
from beam_spark_runner.job.event_store.event_frames import Event, WrongRecordError, events_in
from beam_spark_runner.storage.folder import Folder

_LOGGER = logging.getLogger(__name__)

_OPENED_AT_ONCE = 16  # each object is copied to a local file first


def replay(folder: Folder, warn: Callable[[str], None]) -> Iterator[Event]:
    """Yield the recorded events of a job, from the oldest one.

    They are read while the caller takes them, so that a ``JobRecord`` to which they are appended
    limits what is stored. Of a file that is damaged, or that its server did not complete, the
    events before the damage are yielded; then those of the next file follow.

    Args:
        folder: The folder of the job.
        warn: Is called at most once, with a warning for the user: files cannot be read.
    """
    events = folder_of_events(folder)
    try:
        names = in_order(events.names()) if events.exists() else []
    except OSError as error:
        warn(f"states and messages of earlier starts cannot be shown: {error}")
        return
    has_warned = False
    for name, opening in _open_ahead(events, names):
        try:
            with opening.result() as file:
                yield from events_in(file)
        except WrongRecordError as error:
            # The usual end of a start that was killed.
            _LOGGER.info("events of start %s are read up to an incomplete record: %s", name, error)
        except OSError as error:
            if not has_warned:
                warn(f"some states and messages of earlier starts cannot be shown: {error}")
            has_warned = True


def _open_ahead(folder: Folder, names: Iterable[str]) -> Iterator[tuple[str, "Future[BinaryIO]"]]:
    """Yield each name with its file, which is being opened; some further ones are, too."""
    openings: deque[tuple[str, Future[BinaryIO]]] = deque()
    remaining_names = iter(names)
    with ThreadPoolExecutor(_OPENED_AT_ONCE) as threads:
        try:
            while True:
                for name in islice(remaining_names, _OPENED_AT_ONCE - len(openings)):
                    openings.append((name, threads.submit(folder.open, name)))
                if not openings:
                    return
                yield openings.popleft()
        finally:
            for _, opening in openings:
                if not opening.cancel() and opening.exception() is None:
                    opening.result().close()
