"""Patches defects of Beam's file sinks in repeated steps and in streaming pipelines.

Names of windows: Beam renames the temporary files of a window in its last step. If that step is
repeated, because the program was killed meanwhile, files that have been renamed are skipped. But
the pattern by which Beam searches for these contains the template's letter, W or V, instead of the
window. So it finds none, and would fail after each restart of the pipeline.

Open files: in a bundle with several shards, Beam writes all of them at the same time, through one
sink. The sinks of Avro and Parquet have state for one file only, so that files lose elements.

Empty shards: if a write has fewer shards than requested, the last step adds empty ones with
random names, and numbers all by the order of their names. If it is repeated, an empty shard may get
the number of a shard with elements, and so replace its file.

Late panes: some temporary files of a late pane may be in the folder of the previous pane. Beam
searches one folder only, and removes it once it has renamed the files of the first pane. It also
deletes final files in a step before the one that renames those that replace them, so that a
repeated renaming finds neither.
"""

import contextlib
import copy
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from apache_beam.io import iobase
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem


@functools.cache
def patch_file_sinks() -> None:
    """Patch the file sinks in this process.

    Source: ``FileBasedSink.finalize_windowed_write``, ``_WriteWindowedBundleDoFn``, and
    ``_finalize_windowed_write`` of ``apache_beam.io.iobase``.
    """
    open_writer, finalize = FileBasedSink.open_writer, FileBasedSink.finalize_windowed_write

    @functools.wraps(open_writer)
    def open_by_itself(sink: Any, init_result: Any, uid: str) -> Any:
        return open_writer(copy.deepcopy(sink), init_result, uid)

    @functools.wraps(finalize)
    def finalize_window(
        sink: Any, folder: Any, results: Any, before: Any, w: Any = None
    ) -> Iterator[str]:
        if w is None:
            return iter(finalize(sink, folder, results, before, w))
        return _finalize_window(sink, folder, sorted(results), w)

    FileBasedSink.open_writer = open_by_itself
    FileBasedSink.finalize_windowed_write = finalize_window
    FileBasedSink.pre_finalize_windowed = _delete_nothing
    iobase._finalize_write = _with_names_of_empty_shards(iobase._finalize_write)
    iobase._finalize_windowed_write = _with_names_of_empty_shards(iobase._finalize_windowed_write)


def _with_names_of_empty_shards(finalize: Callable[..., Any]) -> Callable[..., Any]:
    """Have a last step name the empty shards that it adds deterministically, after all others."""

    @functools.wraps(finalize)
    def finalize_with_names(
        element: Any, sink: Any, folder: Any, written: Iterable[Any], *args: Any, **kwargs: Any
    ) -> Any:
        results = list(written)
        if isinstance(sink, FileBasedSink):
            others = hashlib.sha256("\0".join(sorted(results)).encode()).hexdigest()[:32]
            numbers, opening = itertools.count(), sink.open_writer

            def open_shard(folder: Any, uid: str) -> Any:
                return opening(folder, f"~{others}-{next(numbers):06d}")

            sink = copy.copy(sink)
            sink.open_writer = open_shard
        return finalize(element, sink, folder, results, *args, **kwargs)

    return finalize_with_names


def _delete_nothing(sink: Any, init_result: Any, writer_results: Any, window: Any = None) -> None:
    """Do not delete the files of an earlier pane, which ``_finalize_window`` replaces."""


def _finalize_window(sink: Any, folder: str, results: list[str], window: Any) -> Iterator[str]:
    """Rename the temporary files of a pane. May be repeated after any interruption.

    Raises:
        BeamIOError: Both the temporary and the final file of a shard are missing.
    """
    names = [sink._get_final_name(number, len(results), window) for number in range(len(results))]
    moves = []
    for source, target in zip(results, names, strict=True):
        if FileSystems.exists(source):
            moves.append((source, target))
        elif not FileSystems.exists(target):
            raise BeamIOError(f"there is neither {source} nor {target}")
    if _keeps_targets(sink.file_path_prefix.get()):
        FileSystems.delete([target for _, target in moves if FileSystems.exists(target)])
    at_once = FileSystems.get_chunk_size(sink.file_path_prefix.get())
    for first in range(0, len(moves), at_once):
        sources, targets = zip(*moves[first : first + at_once], strict=True)
        FileSystems.rename(list(sources), list(targets))
    sink._report_sink_lineage(sink._get_final_name_glob(len(results), window), names)
    for each in {folder, *(FileSystems.split(result)[0] for result in results)}:
        _remove_if_empty(each)
    yield from (target for _, target in moves)


def _keeps_targets(path: str) -> bool:
    """Whether renaming to an existing file fails: in HDFS, but not locally or in object stores."""
    system = FileSystems.get_filesystem(path)
    return system.has_dirs() and not isinstance(system, LocalFileSystem)


def _remove_if_empty(folder: str) -> None:
    """Remove a folder unless it has files of other panes or of failed attempts."""
    if isinstance(FileSystems.get_filesystem(folder), LocalFileSystem):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    elif FileSystems.exists(folder):  # object stores have no folders
        (found,) = FileSystems.match([FileSystems.join(folder, "*")])
        if not found.metadata_list:
            FileSystems.delete([folder])
