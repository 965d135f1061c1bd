"""Finds and deletes the temporary files of Beam's own sinks.

Beam removes them when a write in batch has succeeded (``FileBasedSink``), or not at all
(``fileio.WriteToFiles``). Only the runner knows when the pipeline has ended.
"""

import glob
import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.internal import pickler
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.value_provider import ValueProvider
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import MOVES_FILES
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.portable.environment_facts import may_be_stock

_LOGGER = logging.getLogger(__name__)

_INITIALIZE = ("/InitializeWrite", "/InitializeWindowedWrite")  # of ``iobase.WriteImpl``
_FILEIOS_FOLDER = re.compile(r"\.temp[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9a-f]{32}")  # a UUID of version 1 at the end of a sink's folder
_UUIDS_EPOCH_S = 12_219_292_800
"""Seconds from the epoch of UUIDs (the start of the Gregorian calendar, 1582) to the Unix epoch."""
_STRAGGLERS_S = 2.2
"""How long Python workers may still write: Spark ends those of a failed job within two seconds."""


def remove_temporary_files(
    graph: Graph, since_s: float, *, has_succeeded: bool, has_written_all: bool
) -> None:
    """Delete temporary files that the sinks of a pipeline have left; errors are only logged.

    It must not be called for a streaming pipeline that may be restarted: what it has committed
    refers to temporary files that are still to be renamed.

    Temporary folders that users chose for ``fileio`` are not deleted. Neither are those in which a
    pipeline that has succeeded may have left data, see ``_may_have_data``.

    Args:
        graph: The graph of a pipeline that was built in this process, and whose run has ended.
        since_s: The start of the run, Unix time: older files are those of other runs.
        has_succeeded: Whether the pipeline has succeeded, so that all that it has written should
            have final names.
        has_written_all: Whether a batch pipeline has succeeded in its first start, so that Beam has
            deleted the files of each ``FileBasedSink``.
    """
    try:
        beginnings = [] if has_written_all else list(_of_sinks(graph))
        of_fileio = [
            folder
            for step, folder in _of_fileio(graph)
            if not (has_succeeded and _may_have_data(graph, step, folder))
        ]
        if _remove(beginnings, of_fileio, since_s) and not has_written_all:
            time.sleep(_STRAGGLERS_S)
            _remove(beginnings, of_fileio, since_s)
    except Exception as error:  # must not change the result of the pipeline
        _LOGGER.warning("temporary files of sinks may be left: %r", error)


def _remove(beginnings: Iterable[str], folders: Iterable[str], since_s: float) -> bool:
    paths = [folder for folder in folders if FileSystems.exists(folder)]
    for beginning in beginnings:
        paths += _younger(beginning, since_s)
    for folder in paths:
        FileSystems.delete([folder])
        _LOGGER.info("removed the temporary files in %s", folder)
    return bool(paths)


def _of_sinks(graph: Graph) -> Iterator[str]:
    """Yield the path prefixes of sinks' folders, of which each attempt of a write makes one."""
    for step in graph.transforms.values():
        if step.name.endswith(_INITIALIZE):
            _, arguments, *_ = do_fn_info(step)
            for sink in arguments:
                if isinstance(sink, FileBasedSink):
                    base, last = FileSystems.split(sink.file_path_prefix.get())
                    yield FileSystems.join(base, f"beam-temp-{last}-")


def _of_fileio(graph: Graph) -> Iterator[tuple[Transform, str]]:
    """Yield the steps that rename files of ``fileio``, with Beam's own folders of these files."""
    for step in graph.transforms.values():
        if step.name.endswith(MOVES_FILES):
            do_fn, *_ = do_fn_info(step)
            folder = do_fn.temporary_directory
            path = folder.get() if isinstance(folder, ValueProvider) else folder
            if _FILEIOS_FOLDER.fullmatch(FileSystems.split(path)[1]):
                yield step, path


def _may_have_data(graph: Graph, step: Transform, folder: str) -> bool:
    """Whether files in a folder may be the only copies of what a pipeline has written; warn of it.

    With this package (``harness.beam.file_sinks``), a step fails if it cannot rename a file. If the
    pipeline has succeeded, files that are left are thus those of failed attempts of tasks. A stock
    SDK does not fail, and nothing tells such files from others.
    """
    assert step.environment is not None  # user code
    coded = graph.environments[step.environment].coded
    if not may_be_stock(beam_runner_api_pb2.Environment.FromString(coded)):
        return False
    (match,) = FileSystems.match([FileSystems.join(folder, "*")])
    if match.metadata_list:
        _LOGGER.warning(
            "%s has files, which failed attempts of tasks have left, or which could not be "
            "renamed. Delete them if no output of %s is missing",
            folder,
            step.name.removesuffix(MOVES_FILES),
        )
    return bool(match.metadata_list)


def do_fn_info(step: Transform) -> tuple[Any, ...]:
    """Unpickle (DoFn, args, kwargs, …); return (None, ()) for a step without a Python DoFn."""
    if step.urn == urns.PAR_DO:
        do_fn = beam_runner_api_pb2.ParDoPayload.FromString(step.payload).do_fn
        if do_fn.urn == python_urns.PICKLED_DOFN_INFO:
            return tuple(pickler.loads(do_fn.payload))
    return None, ()


def _younger(beginning: str, since_s: float) -> set[str]:
    """Return the folders that were made since a time, according to the UUIDs in their names."""
    if isinstance(FileSystems.get_filesystem(beginning), LocalFileSystem):
        paths = glob.glob(glob.escape(beginning) + "*")
    else:  # object stores know files only
        (matched,) = FileSystems.match([beginning + "**"])
        paths = [file.path for file in matched.metadata_list]
    folders = set()
    for path in paths:
        number, *_ = path.removeprefix(beginning).split("/")
        if _NUMBER.fullmatch(number) and uuid.UUID(number).time / 1e7 - _UUIDS_EPOCH_S >= since_s:
            folders.add(beginning + number)
    return folders
