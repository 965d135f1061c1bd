"""Profiles of user code, as Beam's ``--profile_cpu`` and ``--profile_memory`` ask for them."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam.options.pipeline_options import ProfilingOptions
from apache_beam.utils.profiler import Profile

from beam_spark_runner.harness.beam.job_options import JobOptions

_LOGGER = logging.getLogger(__name__)
_profiling = threading.Lock()  # Python 3.12 and later profile one thread at a time


class Profiling:
    """Makes a profile of each bundle or task that is chosen by ``--profile_sample_rate``.

    Threads: any. While one thread is profiled, others run without a profile.

    Args:
        options: Those of the job.
    """

    def __init__(self, options: JobOptions) -> None:
        self._factory, by_name = None, options.by_name
        if by_name.get("profile_cpu") or by_name.get("profile_memory"):
            chosen = options.for_file_systems.view_as(ProfilingOptions)
            self._factory = Profile.factory_from_options(chosen)

    def __call__(self, profile_id: str, **_: Any) -> contextlib.AbstractContextManager[None] | None:
        """Return a context in which this thread is profiled. None: this one is not chosen.

        Args:
            profile_id: The end of the names of the files in ``--profile_location``.
        """
        if self._factory is None:
            return None
        # Beam passes the id to ``strftime``.
        profile = self._factory(profile_id.replace("%", "%%").replace("/", "-"))
        return None if profile is None else _profiled(profile, profile_id)

    def of_task(self, profile_id: str) -> contextlib.AbstractContextManager[None]:
        """Return such a context; if this one is not chosen, it does nothing."""
        return self(profile_id) or contextlib.nullcontext()


@contextlib.contextmanager
def _profiled(profile: Profile, profile_id: str) -> Iterator[None]:
    if not _profiling.acquire(blocking=False):
        yield
        return
    try:
        if not _begins(profile, profile_id):
            yield
            return
        try:
            yield
        finally:
            try:
                profile.__exit__(None, None, None)
            except Exception as error:  # of any file system; a profile does not decide a result
                _LOGGER.warning("the profile of %s could not be written: %s", profile_id, error)
    finally:
        _profiling.release()


def _begins(profile: Profile, profile_id: str) -> bool:
    try:
        profile.__enter__()
    except Exception as error:  # another profiler is active, as with ``python -m cProfile``
        _LOGGER.warning("%s is not profiled: %s", profile_id, error)
        return False
    return True
