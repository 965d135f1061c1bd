"""What releases have stored, each in an archive: ``releases/VERSION-beam-MINOR-KIND.tar.xz``.

``python -m tests.pipelines.stored_releases`` writes the archives of this version, with the version
of Beam in its environment; ``make release-files`` does so with each version of Beam that is
supported. Later versions continue them, or refuse with the version and a remedy.

An archive is never written again: what is stored today may have another layout than what it has.
"""

import contextlib
import os
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam
import apache_beam as beam

from beam_spark_runner.core.version import VERSION
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.files.stored_submission import versions_of
from beam_spark_runner.job.run import session_opening
from beam_spark_runner.savepoint import main as make_savepoint
from tests.harness.processes import wait_for
from tests.pipelines import stored_batch, stored_kinds
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.recoverable import Job
from tests.pipelines.served_jobs import SOON_S, serving

FOLDER = Path(__file__).parent / "releases"
CHECKPOINT, SAVEPOINT, BATCH, SERVER = KINDS = ("checkpoint", "savepoint", "batch", "server")
IN_PROCESS = versions_of("none")
"""The versions of batch jobs that tests run in their own process."""
ROUNDS = "--sdf_round_budget=0.0001"
"""Restrictions leave residuals, also if they are short."""


def this_release() -> str:
    """Return the beginning of the names of this version's archives."""
    minor = ".".join(apache_beam.__version__.split(".")[:2])
    return f"{VERSION}-beam-{minor}"


def archives(kind: str) -> list[Path]:
    """Return the archives of one of ``KINDS``, of all releases."""
    return sorted(FOLDER.glob(f"*-{kind}.tar.xz"))


def path_of(kind: str) -> Path:
    """Return the path of this version's archive of one of ``KINDS``."""
    return FOLDER / f"{this_release()}-{kind}.tar.xz"


def unpack(archive: Path, folder: Path) -> None:
    """Extract an archive into a folder."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def batch_job(spark: Any, folder: Path) -> Job:
    """Return the batch job in a folder."""
    return Job(spark, folder, lambda p, _: stored_batch.build(p), ROUNDS)


def _store_batch(folder: Path) -> None:
    """Let the driver of a batch job die when most of its Spark jobs are done."""
    with tempfile.TemporaryDirectory() as scratch:
        undisturbed = batch_job(None, Path(scratch))
        watched = Deaths(undisturbed.folder)
        with watched.striking():
            undisturbed.start()
    job = batch_job(None, folder)
    with Deaths(job.folder, 3 * len(watched.changes) // 5).striking(), contextlib.suppress(Died):
        job.start()
    job.out.rmdir()


def _store_server(folder: Path) -> None:
    """End a job server while the last step of its job runs."""
    with tempfile.TemporaryDirectory() as name, serving(folder, versions=IN_PROCESS) as server:
        barrier = Path(name)
        with mock.patch.dict(os.environ, {stored_batch.BARRIER: name}):
            job = server.submit(_build)
            wait_for((barrier / stored_batch.ARRIVED).exists)
            ending = threading.Thread(target=server.jobs.end_all, args=(SOON_S,))
            ending.start()
            wait_for(lambda: job.control.is_suspended)
            (barrier / stored_batch.MAY_CONTINUE).touch()
            ending.join()


def _build(p: beam.Pipeline) -> None:
    stored_batch.build(p)


def store(folder: Path) -> Iterator[tuple[str, Path]]:
    """Make what this version stores; yield each of ``KINDS`` with a folder that has all of it.

    Args:
        folder: An empty folder.
    """
    stream, batch, server = (folder / name for name in ("stream", "batch", "server"))
    stored_kinds.stop(stream / "checkpoint")
    yield CHECKPOINT, stream
    saved = folder / "saved"
    assert not make_savepoint(
        [f"--checkpoint_dir={stream / 'checkpoint'}", f"--savepoint_path={saved / 'savepoint'}"]
    )
    yield SAVEPOINT, saved
    _store_batch(batch)
    yield BATCH, batch
    _store_server(server)
    yield SERVER, server


def main() -> None:
    """Write the archives of this version, unless there are some: then end with an error."""
    if there := [path.name for path in map(path_of, KINDS) if path.exists()]:
        sys.exit(
            f"{FOLDER} has {', '.join(there)} already, with the layouts that version {VERSION} had "
            "when they were written, and later versions are to read them: set the next version in "
            "beam_spark_runner/core/version.py first"
        )
    FOLDER.mkdir(exist_ok=True)
    opening = mock.patch.object(
        session_opening, "open_session", side_effect=lambda *_: InProcessSession()
    )
    with tempfile.TemporaryDirectory() as scratch, opening:
        for kind, folder in store(Path(scratch)):
            path = path_of(kind)
            with tarfile.open(path, "x:xz") as archive:
                for each in sorted(folder.iterdir()):
                    archive.add(each, arcname=each.name, filter=_without_owner)
            print(path)


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
