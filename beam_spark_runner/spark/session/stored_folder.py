"""Checks a folder that has a URL, before a pipeline uses it, and deletes such folders."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.rendering import first_line
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.java_errors import line_of, text_of_error
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.storage.folder import Folder

_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_CONTENT = b"probe"
_FILE = "file"


def check_stored_folder(session: SessionHandle, folder: Folder, url: str) -> str:
    """Write and read a file in a folder, by Spark and by the client; once for each application.

    Args:
        session: The session whose executors are to read and write.
        folder: The folder, with its client.
        url: Its URL, for Spark.

    Returns:
        Why the client cannot write files there on the driver, and read them on all executors.
        Empty: it can.

    Raises:
        OptionsError: Spark cannot write and read there.
    """
    key = (session.application_id(), folder)
    with _lock:
        if key not in _checked:
            name = f"beam-probe-{uuid.uuid4().hex}"
            probe_url = f"{url}/{name}"
            _check_spark(session, probe_url)
            _checked[key] = _reason_against_files(session, folder / name, probe_url)
        return _checked[key]


_checked: dict[tuple[str, Folder], str] = {}
_lock = threading.Lock()


def _check_spark(session: SessionHandle, url: str) -> None:
    path = f"{url}/rows"
    try:
        session.spark.range(0, 1, 1, 1).write.parquet(path)
        session.spark.read.parquet(path).collect()
    except Exception as error:
        raise OptionsError(
            "temp_location",
            f"Spark cannot write and read {url}: {line_of(text_of_error(error))}. A missing "
            "connector of Hadoop's can be added with --spark_conf=spark.jars.packages=…, and "
            "credentials with --spark_conf=spark.hadoop.fs.…; or name a folder that is mounted on "
            "this machine and all executors",
        ) from error


def _reason_against_files(session: SessionHandle, probe: Folder, url: str) -> str:
    """See ``check_stored_folder``. The probe is deleted at the end."""
    try:
        probe.create(_FILE, _CONTENT)
    except (OSError, OptionsError) as error:
        reason = f"on this machine: {first_line(error)}"
    else:
        reason = _first_reason(session, _probe_task(probe, _FILE))
    try:
        remove_stored_folder(session, probe, url)
    except Exception as error:  # on Connect, where the client alone could
        reason = reason or f"on this machine: {first_line(error)}"
    return reason


def check_shared_folder(session: SessionHandle, folder: Folder, place: str, option: str) -> None:
    """Check that executors read and write in a folder; once for each application.

    Nothing is done if tasks run on this machine.

    Args:
        session: The session of these executors.
        folder: The folder, which may not exist yet. Empty files may remain in it if this process
            is killed.
        place: The path or URL to name in the error.
        option: The option that has named it.

    Raises:
        OptionsError: This machine or an executor cannot use the folder, or they do not share it.
    """
    if session.is_local:
        return
    key = (session.application_id(), folder)
    with _lock:
        if key in _checked:
            return
        name = uuid.uuid4().hex
        try:
            folder.make()
            folder.create(name, _CONTENT)
            reason = _first_reason(session, _probe_task(folder, name, is_written=True))
            folder.delete([file for file in folder.names() if file.startswith(name)])
        except OSError as error:
            reason = f"on this machine: {first_line(error)}"
        if reason:
            raise OptionsError(
                option,
                f"{place} is not storage that all executors share with this machine: files in it "
                f"could not be written and read ({reason}). Name a folder that is mounted at one "
                "path everywhere, or one of an object store or HDFS which executors may use",
            )
        _checked[key] = ""


def _first_reason(session: SessionHandle, task: _Task) -> str:
    """Run a task in each slot, and return one of the reasons that they give; empty: none does."""
    slots = session.slots()
    answers = session.spark.range(0, slots, 1, slots).mapInArrow(task, "reason string").collect()
    return min({str(reason) for (reason,) in answers} - {""}, default="")


def _probe_task(probe: Folder, name: str, *, is_written: bool = False) -> _Task:
    """Return a task that says why it cannot read a file, or write another one.

    Args:
        probe: The folder of the file.
        name: Its name.
        is_written: Whether it writes one whose name begins like that.
    """

    def read_probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            reason = "" if probe.read(name) == _CONTENT else "a file has another content"
            if is_written:
                probe.create(f"{name}-{uuid.uuid4().hex}", b"")
        except Exception as error:
            reason = f"on an executor: {first_line(error)}"
        yield pa.RecordBatch.from_pylist([{"reason": reason}])

    return read_probe


def remove_stored_folder(session: SessionHandle, folder: Folder, url: str) -> None:
    """Delete a folder with all that is in it, by Hadoop's connector or, on Connect, by the client.

    Hadoop's connectors also delete the empty objects that they create in place of folders.

    Raises:
        Exception: What the connector or the client raises.
    """
    if session.is_connect:
        folder.remove()
    else:
        pyspark_internals.delete_path(session.spark, url)
