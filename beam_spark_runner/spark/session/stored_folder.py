"""Checks a folder that has a URL, before a pipeline uses it, and deletes such folders."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.storage_urls import StorageUrl
from beam_spark_runner.engine.stored_object import StoredObject, first_line
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.handle import SessionHandle

_CONTENT = b"probe"


def check_stored_folder(session: SessionHandle, url: StorageUrl, options_json: str) -> str:
    """Write and read a file in a folder, with Spark and with Beam; once for each application.

    Args:
        session: the session whose executors are to read and write.
        url: the URL of the folder.
        options_json: the pipeline's options, by which Beam finds the store.

    Returns:
        Why Beam's file systems cannot write files there on the driver, and read them on all
        executors. Empty: they can.

    Raises:
        OptionsError: Spark cannot write and read there.
    """
    key = (session.application_id(), url, options_json)
    with _lock:
        if key not in _checked:
            probe = url / f"beam-probe-{uuid.uuid4().hex}"
            _check_spark(session, probe)
            _checked[key] = _reason_against_files(session, probe, options_json)
        return _checked[key]


_checked: dict[tuple[str, StorageUrl, str], str] = {}
_lock = threading.Lock()


def _check_spark(session: SessionHandle, probe: StorageUrl) -> None:
    path = f"{probe.spark}/rows"
    try:
        session.spark.range(0, 1, 1, 1).write.parquet(path)
        session.spark.read.parquet(path).collect()
    except Exception as error:
        raise OptionsError(
            "temp_location",
            f"Spark cannot write and read {probe.spark}: {first_line(error)}. A missing connector "
            "of Hadoop's can be added with --spark_conf=spark.jars.packages=…, and "
            "credentials with --spark_conf=spark.hadoop.fs.…; or name a folder that is mounted on "
            "this machine and all executors",
        ) from error


def _reason_against_files(session: SessionHandle, probe: StorageUrl, options_json: str) -> str:
    """See ``check_stored_folder``. The probe is deleted at the end."""
    written = StoredObject((probe / "file").beam, options_json)
    try:
        written.write(_CONTENT)
    except Exception as error:  # of Beam, or of the store's client
        reason = f"on this machine: {first_line(error)}"
    else:
        slots = session.slots()
        tasks = session.spark.range(0, slots, 1, slots)
        found = tasks.mapInArrow(_reading(written), "reason string").collect()
        reason = min({str(each) for (each,) in found} - {""}, default="")
    try:
        remove_stored_folder(session, probe, options_json)
    except Exception as error:  # on Connect, where Beam alone could
        reason = reason or f"on this machine: {first_line(error)}"
    return reason


def _reading(
    written: StoredObject,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read_probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            reason = "" if written.read() == _CONTENT else "a file has another content"
        except Exception as error:
            reason = f"on an executor: {first_line(error)}"
        yield pa.RecordBatch.from_pylist([{"reason": reason}])

    return read_probe


def remove_stored_folder(session: SessionHandle, url: StorageUrl, options_json: str) -> None:
    """Delete a folder with all that is in it, by Hadoop's connector or, on Connect, by Beam's.

    Raises:
        Exception: what the connector raises.
    """
    if session.is_connect:
        StoredObject(f"{url.beam}/", options_json).remove()
    else:
        pyspark_internals.delete_path(session.spark, url.spark)
