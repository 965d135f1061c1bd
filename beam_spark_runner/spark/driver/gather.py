"""Gathers side inputs: from materialised rows to files in which workers can look up values.

The driver collects small ones only; the reports of the tasks that wrote them have brought the
smallest ones. Tasks write large ones to files, if there is a folder that all workers read;
otherwise their rows pass through the driver in parts, into a file that Spark sends to the
executors.
"""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing, urns
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.output_rows import AmbiguousRowsError, OutputRows
from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import consumed_of
from beam_spark_runner.engine.shared_file import SharedFile, file_in, share_file
from beam_spark_runner.engine.side_inputs import files
from beam_spark_runner.engine.side_inputs.gathered import (
    file_name,
    new_id,
    small_side_input,
    whole_rows,
)
from beam_spark_runner.scheduling.attempts import Ambiguous, ambiguous_runs
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.frame_rows import frame_of
from beam_spark_runner.spark.driver.materialise import Materialiser
from beam_spark_runner.storage.folder import Folder

SHARED_BYTES = 1 << 30
"""Of one side input: the most that is sent to executors' disks where no storage is shared."""
SMALL_BYTES = 32 << 20
"""Of one side input, over all tasks: about as much may be in the driver's memory."""
MIN_SMALL_BYTES_OF_TASK = 64 << 10
MAX_FILES = 64
"""Of one side input, all of which a worker has open."""
PART_BYTES = 64 << 20
"""About the size of what passes through the driver at a time."""
_BUCKET_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherSettings:
    """Where side inputs are gathered.

    ``folder``: a folder that all workers reach; None: there is none, and ``share`` sends what does
    not fit the closure, see ``SessionHandle.share``.
    """

    job_id: str
    partitions: int
    folder: Folder | None
    share: Callable[[Path], SharedFile]
    materialiser: Materialiser

    def send_to_executors(self, path: Path) -> SharedFile:
        """Send a file to all executors; see ``share_file``."""
        return share_file(path, self.folder, self.share)


def gather(
    rows: OutputRows | None, edges: Sequence[Edge], settings: GatherSettings
) -> Mapping[DestinationId, SideInputRows]:
    """Gather the rows of side inputs where all workers can read them.

    Runs Spark jobs, unless the rows have come to the driver.

    Args:
        rows: materialised rows, also of other destinations; None: none were written.
        edges: the edges of the side inputs.
        settings: the settings of this run.

    Raises:
        OptionsError: a side input is too large to be sent to executors, and there is no folder.
        AmbiguousRowsError: tasks have read rows of other attempts than those accepted.
    """
    packed: dict[int, list[pa.RecordBatch]] = {int(edge.dest): [] for edge in edges}
    sizes = dict.fromkeys(packed, 0)
    large: set[int] = set()
    if rows is not None and rows.returned is not None:
        for dest, batch in whole_rows(rows.returned, packed):
            packed[dest].append(batch)
    elif rows is not None:
        tasks = sum(attempts.count for attempts in rows.made_by.values())  # as many tasks read them
        limit = max(SMALL_BYTES // max(tasks, 1), MIN_SMALL_BYTES_OF_TASK)
        reports: list[reports_pb2.SideInputReport] = []
        for dest, size, blob in (
            frame_of(rows.rows.rows_for(packed))
            .mapInArrow(files.pack_up_to(limit), files.PACKED_SCHEMA)
            .collect()
        ):
            if dest == schema.REPORT:
                reports.append(reports_pb2.SideInputReport.FromString(bytes(blob)))
                continue
            sizes[dest] += size
            if blob is None:
                large.add(dest)
            else:
                packed[dest] += files.batches_of(bytes(blob))
        _check(reports, rows, is_exchanged=False)
    gathered: dict[DestinationId, SideInputRows] = {}
    for edge in edges:
        dest = int(edge.dest)
        id_ = new_id(settings.job_id, edge.dest)
        batches = packed.pop(dest)
        if rows is not None and dest in large:
            batches.clear()
            mine = rows.rows_for([dest])
            gathered[edge.dest] = (
                _through_driver(mine, edge, id_, sizes[dest], settings)
                if settings.folder is None
                else _by_tasks(mine, edge, id_, settings.folder, settings.partitions)
            )
        else:
            gathered[edge.dest] = small_side_input(batches, edge, id_, settings.send_to_executors)
    return gathered


def _check(
    reports: Sequence[reports_pb2.SideInputReport], rows: OutputRows, *, is_exchanged: bool
) -> None:
    """Check that tasks have read the rows of accepted attempts. See ``ambiguous_runs``.

    Raises:
        AmbiguousRowsError: they have read others.
    """
    consumed = [consumed_of(report.consumed) for report in reports]
    runs = ambiguous_runs(consumed, rows.made_by, is_exchanged=is_exchanged)
    if runs:
        reason = "side inputs were gathered from other attempts' rows, not from the accepted ones"
        raise AmbiguousRowsError(Ambiguous(runs, reason))


def _by_tasks(
    rows: OutputRows, edge: Edge, id_: str, folder: Folder, partitions: int
) -> SideInputRows:
    """Have tasks write files to shared storage."""
    is_multimap = edge.access_pattern == urns.SIDE_INPUT_MULTIMAP
    if is_multimap:
        frame = _by_ranges(rows, edge, min(partitions, MAX_FILES))
    elif edge.is_global:  # one key
        frame = frame_of(rows.rows).coalesce(MAX_FILES)
    else:
        frame = frame_of(rows.rows).coalesce(MAX_FILES).sortWithinPartitions("route")
    task = files.write_files(folder, file_name(id_), is_sorted=True)
    rows_of_reports = frame.mapInArrow(task, "report binary").collect()
    reports = [reports_pb2.SideInputReport.FromString(bytes(row[0])) for row in rows_of_reports]
    _check(reports, rows, is_exchanged=is_multimap)
    shared_files = tuple(file_in(folder, report.file) for report in reports if report.file)
    return SideInputRows(id=id_, code=edge.code, files=shared_files)


def _by_ranges(rows: OutputRows, edge: Edge, partitions: int) -> DataFrame:
    """Give each partition a range of the hash, so that a key is in one file only; sorted."""
    routes = routing.routes_to_partitions(0, partitions)
    targets = ", ".join(f"{place}L" for place in routes)
    shift = routing.HASH_BITS - _BUCKET_BITS
    bucket = f"shiftright(route & {routing.HASH_MASK}L, {shift})"
    place = f"cast(shiftright({bucket} * {partitions}, {_BUCKET_BITS}) as int)"
    column = f"element_at(array({targets}), {place} + 1)"
    # Marks have a route for each partition already.
    place_column = f"if(dest = {schema.CONTROL}, route, {column}) as place"
    return (
        frames.spread_marks(frame_of(rows.rows), partitions)
        .selectExpr("*", place_column)
        .repartition(partitions, "place")
        .drop("place")
        .sortWithinPartitions("route")
    )


def _through_driver(
    rows: OutputRows, edge: Edge, id_: str, size: int, settings: GatherSettings
) -> SideInputRows:
    """Write one file from parts that the driver fetches one after another."""
    if size > SHARED_BYTES:
        raise OptionsError(
            "temp_location",
            f"the side input read by {edge.name} has {size} bytes, which exceeds the limit of "
            f"{SHARED_BYTES} for sending it to executors over the network; name storage "
            "that all executors can read",
        )
    is_multimap = edge.access_pattern == urns.SIDE_INPUT_MULTIMAP
    frame = frame_of(rows.rows)
    if is_multimap:
        frame = _by_ranges(rows, edge, settings.partitions)
    elif not edge.is_global:
        frame = frame.sortWithinPartitions("route")
    parts = -(-size // PART_BYTES)
    packed = settings.materialiser.materialise(
        frame.mapInArrow(files.blobs_in_parts(parts), files.PARTS_SCHEMA), file_name(id_)
    )

    def of_part(part: int) -> list[Any]:
        return list(packed.filter(f"part = {part}").select("attempt", "blob").collect())

    coded_reports = [blob for _, blob in of_part(files.REPORT_PART)]
    reports = [reports_pb2.SideInputReport.FromString(bytes(blob)) for blob in coded_reports]
    _check(reports, rows, is_exchanged=is_multimap)
    with tempfile.TemporaryDirectory(prefix="beam-") as folder:
        path = os.path.join(folder, f"{file_name(id_)}.arrow")
        with contextlib.closing(files.SortedWriter(path, is_sorted=False)) as writer:
            for part in range(parts):
                blobs = of_part(part)
                reported = {
                    report.attempt: report.blobs[part] for report in reports if part in report.blobs
                }
                if Counter(attempt for attempt, _ in blobs) != reported:
                    # Two attempts at a task have stored packed rows: they are packed again.
                    reason = f"the side input read by {edge.name} came from several task attempts"
                    raise AmbiguousRowsError(Ambiguous(frozenset(), reason))
                for _, blob in blobs:
                    for batch in files.batches_of(blob):
                        writer.add(batch)
        return SideInputRows(
            id=id_, code=edge.code, files=(settings.send_to_executors(Path(path)),)
        )
