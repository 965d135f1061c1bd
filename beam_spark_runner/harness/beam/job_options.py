"""The options of jobs, as Beam's SDK sees them in a process that serves many.

Beam has one set of options for a process: value providers and file systems read them from class
attributes. Here these attributes have a value for each thread, so that callbacks and ``teardown``
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
        options_json: as of ``sdk_options.options_json``.

    Attributes:
        by_name: the options that the pipeline has set, and Beam's defaults of the others.
    """

    def __init__(self, options_json: str) -> None:
        given = json.loads(options_json)
        self.by_name: Mapping[str, Any] = {urn.split(":")[2]: given[urn] for urn in given}
        self.for_file_systems = PipelineOptions.from_dictionary(self.by_name)
        experiments = self.by_name.get("experiments")
        self.experiments: set[str] = set(experiments) if experiments else set()


class _OfThread(threading.local):
    options: JobOptions | None = None


_of_thread = _OfThread()
_of_process: JobOptions | None = None


def use_options(options: JobOptions) -> None:
    """Let the SDK see a job's options in this process, as SDK harnesses do when they start.

    Value providers return them, file systems get addresses from them, and user code is unpickled
    by the library that has pickled it. (The library is the same for all threads: what has been
    pickled by one of Beam's libraries can be read by the other.)
    """
    global _of_process
    _of_process = options
    # ``RuntimeValueProvider.set_runtime_options`` and ``FileSystems.set_options`` set these.
    RuntimeValueProvider.runtime_options = _Seen(lambda seen: seen.by_name, None)
    RuntimeValueProvider.experiments = _Seen(lambda seen: seen.experiments, frozenset())
    FileSystems._pipeline_options = _Seen(lambda seen: seen.for_file_systems, None)
    pickler.set_library(options.by_name.get("pickle_library", "default"))


@contextlib.contextmanager
def seeing(options: JobOptions | None) -> Iterator[None]:
    """Let this thread see a job's options, whatever the process uses. None: changes nothing."""
    before = _of_thread.options
    _of_thread.options = options or before
    try:
        yield
    finally:
        _of_thread.options = before


class _Seen:
    """A class attribute that has a value for each thread."""

    def __init__(self, read: Callable[[JobOptions], Any], without: Any) -> None:
        self._read = read
        self._without = without

    def __get__(self, instance: object, owner: type) -> Any:
        options = _of_thread.options or _of_process
        return self._without if options is None else self._read(options)
