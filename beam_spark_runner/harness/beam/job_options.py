"""Gives Beam's SDK the options of each job, in a process that serves several jobs.

Beam has one set of options per process: value providers and file systems read them from class
attributes. Here these attributes have a value per thread, so that callbacks and ``teardown``
of one job see its own options while a task of another job runs.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apache_beam.internal import pickler
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider


class JobOptions:
    """The options of one job.

    Args:
        options_json: The JSON that ``sdk_options.options_json`` returns.

    Attributes:
        by_name: All options by name, with Beam's defaults for those that are not set.
    """

    def __init__(self, options_json: str) -> None:
        by_urn = json.loads(options_json)
        self.by_name: Mapping[str, Any] = {urn.split(":")[2]: by_urn[urn] for urn in by_urn}
        self.for_file_systems = PipelineOptions.from_dictionary(self.by_name)
        experiments = self.by_name.get("experiments")
        self.experiments: set[str] = set(experiments) if experiments else set()


class _OfThread(threading.local):
    options: JobOptions | None = None


_of_thread = _OfThread()
_of_process: JobOptions | None = None


def use_options(options: JobOptions) -> None:
    """Set a job's options in this process, as SDK harnesses do when they start.

    Value providers return them, file systems are configured by them, and user code is unpickled
    by the library that has pickled it. (The library is set for all threads, because each of Beam's
    libraries can unpickle the output of the other.)
    """
    global _of_process
    _of_process = options
    # ``RuntimeValueProvider.set_runtime_options`` and ``FileSystems.set_options`` set these.
    RuntimeValueProvider.runtime_options = _CurrentOption(lambda job: job.by_name, None)
    RuntimeValueProvider.experiments = _CurrentOption(lambda job: job.experiments, frozenset())
    FileSystems._pipeline_options = _CurrentOption(lambda job: job.for_file_systems, None)
    pickler.set_library(options.by_name.get("pickle_library", "default"))


@contextlib.contextmanager
def seeing(options: JobOptions | None) -> Iterator[None]:
    """Set a job's options for this thread within a context; None: changes nothing."""
    previous = _of_thread.options
    _of_thread.options = options or previous
    try:
        yield
    finally:
        _of_thread.options = previous


class _CurrentOption:
    """A class attribute that depends on the options of the reading thread or of the process.

    Args:
        read: Returns the value for a job's options.
        without: The value if neither thread nor process has options.
    """

    def __init__(self, read: Callable[[JobOptions], Any], without: Any) -> None:
        self._read = read
        self._without = without

    def __get__(self, instance: object, owner: type) -> Any:
        options = _of_thread.options or _of_process
        return self._without if options is None else self._read(options)
