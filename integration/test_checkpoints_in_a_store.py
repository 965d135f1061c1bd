"""Checkpoints in S3, Azure and HDFS: killed drivers, two drivers at once, a cluster, savepoints."""

import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.manifest import epochs_of
from beam_spark_runner.recovery.savepoint_copy import CopyingStorage
from beam_spark_runner.recovery.sweep import unneeded
from beam_spark_runner.spark.session.launch import start_classic
from integration.checkpoint_store import CheckpointStore, storage
from integration.cluster import Cluster, end_jvm
from integration.driver_programs import start_driver
from integration.killed_driver import Kind, Orders
from integration.object_store import ObjectStore
from integration.pipelines import counters
from integration.running import run
from integration.started_store import start_store
from integration.streams import HELD, KEYS, check_files, windows_of_state
from integration.waiting import wait_until
from tests.cli.programs import Program
from tests.spark.endless import (
    WINDOWS_AND_TIMERS,
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1500),
    pytest.mark.usefixtures("nothing_goes_on"),
]

COUNT = 24
LINEAGE = "main"
_NO_CONTAINER = "abfss://no-such-container@devstoreaccount1.dfs.core.windows.net/here"


@pytest.fixture(scope="module", params=["S3", "Azure", "HDFS"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CheckpointStore]:
    with start_store(request.param, tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def session() -> Iterator[Any]:
    """A local session that ends with the test: the next one wants a JVM of its own."""
    spark = start_classic("local[2]", "savepoints", {"spark.ui.enabled": "false"})
    yield spark
    spark.stop()


class Drivers:
    """Programs that run one pipeline, whose checkpoint is in the store."""

    def __init__(
        self, store: CheckpointStore, folder: Path, kind: Kind, count: int = COUNT
    ) -> None:
        self._store, self._folder, self._kind, self._numbers = store, folder, kind, count
        self.out, self._notes = folder / "out", folder / "notes"
        for each in self.out, self._notes:
            each.mkdir()
        self.url = store.folder(folder.name)
        self._name = folder.name
        self._count = 0
        self._may_end = folder / "may end"

    def start(self, *, until_released: bool = False) -> Program:
        """Start a program; see ``release``."""
        self._count += 1
        out, notes = str(self.out), str(self._notes)
        held = {HELD: str(self._may_end)} if until_released else {}
        return start_driver(
            self._folder / f"run-{self._count}",
            Orders("", 0, 1, self._numbers, self._kind.name, out, notes, self.url),
            f"--checkpoint_dir={self.url}",
            *self._store.checkpoint_flags,
            f"--parallelism={1 + self._count % 3}",
            **self._store.environment,
            **held,
        )

    def release(self) -> None:
        """Let sources come to their end."""
        self._may_end.touch()

    @property
    def _storage(self) -> CopyingStorage:
        return storage(self._store, self._name)

    def committed(self) -> int:
        """Return the newest epoch that is committed."""
        found = newest(self._storage, epochs_of(LINEAGE))
        return found[-1].epoch if found else 0

    def check(self, code: int, out: str, err: str) -> None:
        """Check what all programs have made, and what they have left in the store."""
        assert code == 0, err
        assert out.splitlines()[-1] == str({"elements": KEYS * self._numbers})
        check_files(self.out, self._numbers)
        names = self._storage.names()
        kept = newest(self._storage, epochs_of(LINEAGE), len(names))
        assert kept[-1].is_final
        assert len(kept) == 3
        assert unneeded(names, LINEAGE, kept) == ()
        known = ".manifest", ".fence", ".delta", ".view", ".probe"
        assert not [name for name in names if not name.endswith(known)]


def test_killed_drivers_change_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    """Each of them has another number of partitions than the one before.

    An epoch has one Spark job in the one store, and several, which store rows, in the other one.
    """
    kind = Kind.SOURCES if isinstance(store, ObjectStore) else Kind.CUT
    chance, drivers = random.Random(kind.name), Drivers(store, tmp_path, kind)
    for _ in range(3):
        until = drivers.committed() + 1 + chance.randrange(3)
        program = drivers.start()
        if program.wait_until(lambda until=until: drivers.committed() >= until):  # type: ignore[misc]
            time.sleep(chance.random() / 2)  # the moment is chance's
            program.send(signal.SIGKILL)
        program.end(600)
    ended = drivers.start().end(600)
    drivers.check(ended.code, ended.out, ended.err)


def test_of_two_drivers_the_later_one_goes_on(store: CheckpointStore, tmp_path: Path) -> None:
    """The earlier one does not end by itself, however long the later one takes to start."""
    drivers = Drivers(store, tmp_path, Kind.SOURCES, 32)
    first = drivers.start(until_released=True)
    assert first.wait_until(lambda: drivers.committed() >= 2)
    second = drivers.start(until_released=True)
    stopped = first.end(600)
    drivers.release()
    assert stopped.code == 1
    assert "another program has taken over this pipeline's checkpoint" in stopped.err
    ended = second.end(600)
    drivers.check(ended.code, ended.out, ended.err)


def test_on_a_cluster(store: CheckpointStore, cluster: Cluster) -> None:
    end_jvm()
    # Executors have the credentials; Spark itself does not write there.
    conf = {f"spark.executorEnv.{key}": value for key, value in store.environment.items()}
    flags = [f"--checkpoint_dir={store.folder('on-a-cluster')}/", *store.checkpoint_flags]
    with cluster.session("checkpoints in a store", conf) as session:
        result = run(session, windows_of_state, *flags)
    assert counters(result) == {"elements": 3 * KEYS}
    names = storage(store, "on-a-cluster").names()
    assert [name for name in names if name.endswith(".delta")]


def test_savepoints_go_from_a_store_to_a_folder_and_back(
    store: CheckpointStore, session: Any, tmp_path: Path
) -> None:
    flags = store.checkpoint_flags

    def build(name: str) -> tuple[Any, Path, Path]:
        seen, ended = tmp_path / name / "seen", tmp_path / name / "ended"
        seen.mkdir(parents=True)
        ended.mkdir()
        return windows_and_timers(seen, ended), seen, ended

    first, seen, _ = build("first")
    running = started(session, first, f"--checkpoint_dir={store.folder('saved')}", *flags)
    wait_until(lambda: len(noted(seen)) == 6, "the first elements")
    objects = storage(store, "saved")
    before = newest(objects, epochs_of(LINEAGE))
    wait_until(lambda: newest(objects, epochs_of(LINEAGE)) != before, "another commit")
    in_a_folder, in_the_store = str(tmp_path / "savepoint"), store.folder("savepoint")
    running.savepoint(in_a_folder)
    running.savepoint(in_the_store)
    running.cancel()
    for name, checkpoints, savepoint in (
        ("second", store.folder("second"), in_a_folder),
        ("third", str(tmp_path / "third checkpoints"), in_the_store),
    ):
        pipeline, seen, ended = build(name)
        places = f"--checkpoint_dir={checkpoints}", f"--savepoint_path={savepoint}"
        result = started(session, pipeline, *flags, *places, "--drain")
        assert result.wait_until_finish() == "DRAINED"
        assert (noted(seen), noted(ended)) == ([], WINDOWS_AND_TIMERS)


@pytest.mark.parametrize(
    ("store", "url", "named", "problem"),
    [
        ("S3", "s3://no-such-bucket/here", "s3a://no-such-bucket/here", "NoSuchBucket"),
        ("Azure", _NO_CONTAINER, _NO_CONTAINER, "ContainerNotFound"),
    ],
    indirect=["store"],
    scope="module",
)
def test_a_bucket_that_is_missing_is_named(
    store: CheckpointStore, session: Any, url: str, named: str, problem: str
) -> None:
    with pytest.raises(CheckpointStorageError, match=re.escape(named)) as missing:
        run(session, windows_of_state, f"--checkpoint_dir={url}", *store.checkpoint_flags)
    assert problem in str(missing.value)
