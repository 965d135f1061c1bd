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

Names in the output: Beam yields the names of those files only that it renames. If the last step is
repeated, the names of those that have been renamed before would be missing in the sink's output.

UUIDs: if the template of names has the letter U, Beam makes a new UUID each time that it computes
a name. So a repeated last step never finds the files that it has renamed.

Files that cannot be renamed: ``fileio.WriteToFiles`` makes no folders for names such as
``dt=1/part``, and logs errors of renaming only for debugging. So the pipeline would succeed without
these files. It also numbers files in the order in which they arrive, which may be another one when
the step is repeated: a file could then replace one that has been renamed.

Small files: a write without a number of shards makes one file in each bundle. A few elements, which
the runner spreads over all cores, would so be in many files. Where files can be joined, and are
small together, they become one, as on runners with one bundle; see ``joined_files``.
"""

import contextlib
import copy
import functools
import hashlib
import itertools
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio, iobase
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from beam_spark_runner.harness.beam.joined_files import way_to_join

_UUID = re.compile(r"%\(uuid\)(\w+)")  # in the format that Beam makes of a template of names
_MAX_JOINED_BYTES = 1 << 20
_MAX_JOINED_FILES = 32  # which are read one after another
_NOT_REPLACED = re.compile("[UVW]+")  # in the pattern that Beam makes of it


@functools.cache
def patch_file_sinks() -> None:
    """Patch the file sinks in this process.

    Source: ``FileBasedSink.finalize_windowed_write``, ``_WriteWindowedBundleDoFn``, and
    ``_finalize_windowed_write`` of ``apache_beam.io.iobase``;
    ``_MoveTempFilesIntoFinalDestinationFn`` of ``apache_beam.io.fileio``.
    """
    open_writer, finalize = FileBasedSink.open_writer, FileBasedSink.finalize_windowed_write

    @functools.wraps(open_writer)
    def open_by_itself(sink: Any, init_result: Any, uid: str) -> Any:
        return open_writer(copy.deepcopy(sink), init_result, uid)

    @functools.wraps(finalize)
    def finalize_window(
        sink: Any, folder: Any, results: Any, pre_finalize_result: Any, w: Any = None
    ) -> Iterator[str]:
        if w is None:
            return _finalize_without_windows(
                finalize, sink, folder, sorted(results), pre_finalize_result
            )
        return _finalize_window(sink, folder, sorted(results), w)

    prepare = FileBasedSink.pre_finalize

    @functools.wraps(prepare)
    def prepare_to_finalize(sink: Any, folder: Any, results: Iterable[str]) -> None:
        files = sorted(results)
        prepare(sink, folder, files)
        _delete_older(sink, files)

    FileBasedSink.pre_finalize = prepare_to_finalize
    FileBasedSink.open_writer = open_by_itself
    FileBasedSink.finalize_windowed_write = finalize_window
    FileBasedSink.pre_finalize_windowed = _delete_nothing
    iobase._finalize_write = _with_names_of_empty_shards(iobase._finalize_write)
    iobase._finalize_windowed_write = _with_names_of_empty_shards(iobase._finalize_windowed_write)
    moves = fileio._MoveTempFilesIntoFinalDestinationFn
    moves.process = _with_errors_of_renaming(moves.process)


def _with_names_of_empty_shards(finalize: Callable[..., Any]) -> Callable[..., Any]:
    """Have a last step name the empty shards that it adds deterministically, after all others."""

    @functools.wraps(finalize)
    def finalize_with_names(
        element: Any,
        sink: Any,
        folder: Any,
        writer_results: Iterable[Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        results = list(writer_results)
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


def _finalize_without_windows(
    finalize: Callable[..., Any],
    sink: Any,
    folder: Any,
    results: list[str],
    pre_finalize_result: Any,
) -> Iterator[str]:
    """Have Beam's own code rename the files of a write without windows, and yield all their names.

    It also removes the folder with temporary files of failed attempts, since no other step of the
    pipeline needs it.
    """
    if _can_be_joined(sink, results) and (name := _join(sink, folder, results)) is not None:
        yield name
        return
    names, sink = _final_names(sink, results), copy.copy(sink)
    sink._get_final_name = lambda number, *_: names[number]
    sink.shard_name_glob_format = _NOT_REPLACED.sub("*", sink.shard_name_glob_format)
    for _ in finalize(sink, folder, results, pre_finalize_result):
        pass  # it yields the names of those that are renamed now
    yield from names


def _can_be_joined(sink: Any, results: Sequence[str]) -> bool:
    """Whether the files of a sink become one, if they are small together."""
    if sink.num_shards or sink.max_records_per_shard or sink.max_bytes_per_shard:
        return False  # the user has chosen the files
    if not 1 < len(results) <= _MAX_JOINED_FILES:
        return False
    return way_to_join(sink, results) is not None


def _join(sink: Any, folder: str, results: Sequence[str]) -> str | None:
    """Join small temporary files; return the final name. None: they are not to be joined.

    May be repeated after any interruption: temporary files are deleted after the renaming alone,
    and the same files are always joined or not. As with Beam's own last step, a file with the final
    name is that of an earlier attempt, since ``pre_finalize`` has deleted older ones.
    """
    target, names = _joined_name(sink, results), _final_names(sink, results)
    if target in names:  # the number of files is not in their names, so that names say nothing
        return None
    sizes = _sizes_of(results)
    if len(sizes) < len(results):
        # An earlier attempt has joined and renamed files, or has renamed each of them.
        was_joined = FileSystems.exists(target) and not any(map(FileSystems.exists, names))
        return target if was_joined else None
    if sum(sizes) > _MAX_JOINED_BYTES:
        return None
    joined_file, join = f"{results[0]}~joined", way_to_join(sink, results)
    assert join is not None
    join(sink, results, joined_file)
    _rename([(joined_file, target)])
    sink._report_sink_lineage(sink._get_final_name_glob(1), [target])
    with contextlib.suppress(BeamIOError):  # as Beam does: the files are not needed any more
        FileSystems.delete([folder])
    return target


def _delete_older(sink: Any, results: Sequence[str]) -> None:
    """Delete a file of an earlier pipeline with the name of the file that ``_join`` will make."""
    if not _can_be_joined(sink, results):
        return
    target, sizes = _joined_name(sink, results), _sizes_of(results)
    will_be_joined = len(sizes) == len(results) and sum(sizes) <= _MAX_JOINED_BYTES
    if will_be_joined and FileSystems.exists(target):
        FileSystems.delete([target])


def _joined_name(sink: Any, results: Sequence[str]) -> str:
    (name,) = _final_names(sink, results[:1])
    return name


def _sizes_of(files: Sequence[str]) -> list[int]:
    """Return the sizes of those files that exist."""
    sizes = []
    for file in files:
        with contextlib.suppress(BeamIOError, OSError):
            sizes.append(int(FileSystems.get_filesystem(file).size(file)))
    return sizes


def _finalize_window(sink: Any, folder: str, results: list[str], window: Any) -> Iterator[str]:
    """Rename the temporary files of a pane, and yield all their names.

    May be repeated after any interruption.

    Raises:
        OSError: See ``_rename``.
    """
    names = _final_names(sink, results, window)
    _rename([*zip(results, names, strict=True)])
    sink._report_sink_lineage(sink._get_final_name_glob(len(results), window), names)
    for temporary_folder in {folder, *(FileSystems.split(result)[0] for result in results)}:
        _remove_if_empty(temporary_folder)
    yield from names


def _final_names(sink: Any, results: Sequence[str], window: Any = None) -> list[str]:
    """Return the final names of temporary files, each time the same ones."""
    return [
        _with_uuid_of(result, sink)._get_final_name(number, len(results), window)
        for number, result in enumerate(results)
    ]


def _with_uuid_of(result: str, sink: Any) -> Any:
    """Copy a sink, and give names a UUID that depends on nothing but a temporary file's name."""
    number, sink = uuid.uuid5(uuid.NAMESPACE_URL, result).int, copy.copy(sink)
    sink.shard_name_format = _UUID.sub(
        lambda match: f"%{match[1]}" % number, sink.shard_name_format
    )
    return sink


def _with_errors_of_renaming(process: Callable[..., Any]) -> Callable[..., Any]:
    """Have ``WriteToFiles`` rename files by ``_rename``, and number them by their temporary names.

    A final name thus depends only on the names of the temporary files.
    """

    @functools.wraps(process)
    def rename_files(do_fn: Any, element: Any, w: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        destination, files = element[0], sorted(element[1], key=lambda file: file.file_name)
        results = [
            fileio.FileResult(
                do_fn.file_naming_fn(file.window, file.pane, number, len(files), "", destination),
                number,
                len(files),
                file.window,
                file.pane,
                destination,
            )
            for number, file in enumerate(files)
        ]
        folder = do_fn.path.get()
        targets = [FileSystems.join(folder, result.file_name) for result in results]
        _rename([*zip((file.file_name for file in files), targets, strict=True)])
        yield from results
        do_fn._check_orphaned_files((destination, w))

    return rename_files


def _rename(moves: Sequence[tuple[str, str]]) -> None:
    """Give temporary files their final names, in place of files that have these names.

    It may be repeated after any interruption.

    Raises:
        OSError: A file still has its temporary name, or may be lost.
    """
    rest = _remaining_moves(moves)
    try:
        _rename_all(rest)
    except BeamIOError:
        # Another attempt of the task may have renamed files meanwhile.
        if rest := _remaining_moves(rest):
            _make_room([target for _, target in rest])
            _rename_all(rest)


def _rename_all(moves: Sequence[tuple[str, str]]) -> None:
    FileSystems.rename([source for source, _ in moves], [target for _, target in moves])


def _remaining_moves(moves: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of the files that still have their temporary names.

    Raises:
        FileNotFoundError: A file has neither name. If its temporary file was lost, so are elements;
            nothing distinguishes this from a final file that another program has taken away.
    """
    rest = []
    for source, target in moves:
        if FileSystems.exists(source):
            rest.append((source, target))
        elif not FileSystems.exists(target):
            raise FileNotFoundError(
                f"there is neither {source} nor {target}. If {target} was renamed before, and "
                "another program has moved or deleted it since, create a file of this name, which "
                "may be empty, and start the pipeline again"
            )
    return rest


def _make_room(targets: Sequence[str]) -> None:
    """Make the folders of files that could not be renamed, and delete files that have their names.

    Only HDFS does not replace files: in object stores and locally, an error has another reason.

    Raises:
        OSError: A folder cannot be made, or a file cannot be deleted.
    """
    system = FileSystems.get_filesystem(targets[0])
    if not system.has_dirs():
        return
    for folder in {FileSystems.split(target)[0] for target in targets}:
        try:
            FileSystems.mkdirs(folder)
        except OSError:  # also if it exists
            if not FileSystems.exists(folder):
                raise
    if not isinstance(system, LocalFileSystem):
        # Never before the renaming has failed: the file may be the one that another attempt of the
        # task has renamed just now.
        FileSystems.delete([target for target in targets if FileSystems.exists(target)])


def _remove_if_empty(folder: str) -> None:
    """Remove a folder unless it has files of other panes or of failed attempts."""
    if isinstance(FileSystems.get_filesystem(folder), LocalFileSystem):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    elif FileSystems.exists(folder):  # object stores have no folders
        (match,) = FileSystems.match([FileSystems.join(folder, "*")])
        if not match.metadata_list:
            FileSystems.delete([folder])
