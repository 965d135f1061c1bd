"""Streaming pipelines with their keys in a Redis server: checkpoints, partitions, changes."""

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner import savepoint, state_store
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from tests.counting_streams import EPOCHS, KEYS, Count, failing, pipeline
from tests.harvest import harvest
from tests.state_store.servers import RedisServer, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


@pytest.fixture(scope="module")
def expected(spark_session: Any) -> Any:
    return harvest(spark_session, pipeline(lambda: None, None))


def test_a_copied_checkpoint_has_its_own_keys(
    server: RedisServer, expected: Any, spark_session: Any, tmp_path: Path
) -> None:
    """Two pipelines continue from one checkpoint; none disturbs the other."""
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def stop() -> None:
        raise ValueError("stop")

    store = f"--state_store={server.url}"
    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, pipeline(stop, 3), store, f"--checkpoint_dir={checkpoint}")
    shutil.copytree(checkpoint, copy)
    kept = harvest(
        spark_session, pipeline(lambda: None, None), store, f"--checkpoint_dir={checkpoint}"
    )
    copied = harvest(spark_session, pipeline(lambda: None, None), store, f"--checkpoint_dir={copy}")
    assert kept["counts"] == copied["counts"]
    assert set(kept["counts"]) < set(expected["counts"])
    assert ("key 1", EPOCHS, -EPOCHS) in kept["counts"]
    assert server.client().keys("*") == []


def test_a_start_before_the_first_commit_leaves_nothing(
    server: RedisServer, expected: Any, spark_session: Any, tmp_path: Path
) -> None:
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="stop"):
            harvest(spark_session, failing(0), *flags)
    found = harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert found["counts"] == expected["counts"]
    assert server.client().keys("*") == []


def test_a_checkpoint_that_was_moved(
    server: RedisServer,
    expected: Any,
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it has left is listed, and can be dropped."""
    before, after = tmp_path / "before", tmp_path / "after"
    store = f"--state_store={server.url}"
    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, failing(3), store, f"--checkpoint_dir={before}")
    (namespace,) = namespaces(server)
    before.rename(after)
    with caplog.at_level(logging.WARNING):
        done = pipeline(lambda: None, None)
        found = harvest(spark_session, done, store, f"--checkpoint_dir={after}")
    assert ("key 1", EPOCHS, -EPOCHS) in found["counts"]
    assert set(found["counts"]) < set(expected["counts"])
    assert f"belongs to the checkpoint in {before}" in caplog.text
    assert f"drop {namespace}" in caplog.text
    capsys.readouterr()
    assert state_store.main([store, "list"]) == 0
    assert capsys.readouterr().out.startswith(f"{namespace}  {before} after epoch ")
    assert namespaces(server) == {namespace}
    assert state_store.main([store, "drop", namespace]) == 0
    assert server.client().keys("*") == []


def set_back(spark_session: Any, checkpoint: Path, *flags: str) -> None:
    """Run a pipeline for some epochs, and set its checkpoint back to the first ones."""
    older = checkpoint.with_name("older")

    def stop_at(epoch: int) -> Callable[[beam.Pipeline], dict[str, Any]]:
        def stop() -> None:
            raise ValueError("stop")

        return pipeline(stop, epoch)

    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, stop_at(2), *flags)
    shutil.copytree(checkpoint, older)
    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, stop_at(4), *flags)
    shutil.rmtree(checkpoint)
    older.rename(checkpoint)


def test_a_checkpoint_that_was_set_back(
    server: RedisServer, spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tmp_path / "checkpoint"
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={checkpoint}")
    set_back(spark_session, checkpoint, *flags)
    with caplog.at_level(logging.WARNING):
        found = harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert "is ahead of the checkpoint" in caplog.text
    assert caplog.text.count("is ahead of the checkpoint") == 1
    assert ("key 1", EPOCHS, -EPOCHS) in found["counts"]
    assert server.client().keys("*") == []


def test_a_driver_that_dies_while_it_leaves_a_namespace(
    server: RedisServer, spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start removes what is there, and continues in the other one."""
    checkpoint = tmp_path / "checkpoint"
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={checkpoint}")
    set_back(spark_session, checkpoint, *flags)
    (left,) = namespaces(server)

    def die(*_: object) -> None:
        raise ValueError("died")

    with monkeypatch.context() as m:
        m.setattr(RedisNamespaces, "drop", die)
        with pytest.raises(ValueError, match="died"):
            harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert namespaces(server) == {left}

    def stop() -> None:
        raise ValueError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, pipeline(stop, 4), *flags)
    assert left not in namespaces(server)
    found = harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert ("key 1", EPOCHS, -EPOCHS) in found["counts"]
    assert server.client().keys("*") == []


def test_a_changed_pipeline_and_a_savepoint(
    server: RedisServer, spark_session: Any, tmp_path: Path
) -> None:
    """A step is renamed, one is removed, and one is new; then it begins from a savepoint."""

    def build(*names: str, fails_at: int | None) -> Callable[[beam.Pipeline], dict[str, Any]]:
        def fail(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == fails_at:
                raise ValueError("stop")
            return pair

        def build_it(p: beam.Pipeline) -> dict[str, Any]:
            events = Stream().with_output_types(tuple[str, int])
            for epoch in range(EPOCHS):
                pairs = [TimestampedValue((f"key {key}", epoch), epoch) for key in range(KEYS)]
                events = events.add_elements(pairs).advance_watermark_to(epoch)
            elements = p | events.advance_watermark_to_infinity()
            typed = elements | "fail" >> beam.Map(fail).with_output_types(tuple[str, int])
            return {name: typed | name >> beam.ParDo(Count()) for name in names}

        return build_it

    def stores() -> set[bytes]:
        return {key.split(b".")[1] for key in server.client().scan_iter("bsr:{*")}

    store, checkpoint = f"--state_store={server.url}", tmp_path / "checkpoint"
    flags = (store, f"--checkpoint_dir={checkpoint}")
    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, build("first", "second", fails_at=3), *flags)
    assert stores() == {b"0", b"1"}
    renamed = """--transform_name_mapping={"first": "renamed", "second": ""}"""
    changed = build("renamed", "third", fails_at=4)
    with pytest.raises(RuntimeError, match="stop"):
        harvest(spark_session, changed, *flags, renamed)
    assert len(stores()) == 2
    assert b"2" in stores()

    copy = tmp_path / "savepoint"
    assert savepoint.main([f"--checkpoint_dir={checkpoint}", f"--savepoint_path={copy}"]) == 0
    done = build("renamed", "third", fails_at=None)
    found = harvest(spark_session, done, *flags, renamed)
    begun = harvest(
        spark_session,
        done,
        *(store, f"--checkpoint_dir={tmp_path / 'new'}", f"--savepoint_path={copy}", renamed),
    )
    for each in (found, begun):
        assert ("key 1", EPOCHS, -EPOCHS) in each["renamed"]
        assert ("key 1", 3, -3) in each["third"]  # it has had the elements of epochs 3 to 5
    assert server.client().keys("*") == []


def test_another_number_of_partitions(
    server: RedisServer, spark_session: Any, tmp_path: Path
) -> None:
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}")

    def stop() -> None:
        raise ValueError("stop")

    for epoch, partitions in ((1, 2), (2, 3), (4, 8)):
        with pytest.raises(RuntimeError, match="stop"):
            harvest(spark_session, pipeline(stop, epoch), *flags, f"--parallelism={partitions}")
    found = harvest(spark_session, pipeline(lambda: None, None), *flags, "--parallelism=2")
    ended = {(f"key {key}", EPOCHS, -EPOCHS) for key in range(KEYS)}
    assert ended <= set(found["counts"])
    assert server.client().keys("*") == []


@pytest.mark.usefixtures("no_state_store_by_default")
@pytest.mark.parametrize("partitions", [(2, 2, 2, 2), (2, 3, 1, 4)])
def test_keys_enter_the_state_store_and_leave_it(
    partitions: tuple[int, ...],
    server: RedisServer,
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, checkpoint = f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}"

    def stop() -> None:
        raise ValueError("stop")

    def run(harm: Callable[[], object], at: int | None, place: int, *flags: str) -> Any:
        parallelism = f"--parallelism={partitions[place]}"
        return harvest(spark_session, pipeline(harm, at), checkpoint, parallelism, *flags)

    with pytest.raises(RuntimeError, match="stop"):
        run(stop, 2, 0)
    with pytest.raises(RuntimeError, match="stop"):
        run(stop, 3, 1, store)
    left = namespaces(server)
    with pytest.raises(RuntimeError, match="stop"):
        run(stop, 4, 2)
    (namespace,) = left
    assert f"beam-spark-state-store drop {namespace}" in caplog.text
    found = run(lambda: None, None, 3, store)
    assert {(f"key {key}", EPOCHS, -EPOCHS) for key in range(KEYS)} <= set(found["counts"])
    assert all((f"key {key}", [4, 5]) in found["groups"] for key in range(KEYS))
    assert namespaces(server) == left  # the second one is gone


def namespaces(server: RedisServer) -> set[str]:
    """Return the namespaces that have groups."""
    return {
        key.split(b"{")[1].split(b".")[0].decode() for key in server.client().scan_iter("bsr:{*")
    }


@pytest.mark.usefixtures("no_state_store_by_default")
def test_what_is_refused(server: RedisServer, spark_session: Any, tmp_path: Path) -> None:
    def stop() -> None:
        raise ValueError("stop")

    store = f"--state_store={server.url}"
    refused: list[tuple[tuple[str, ...], str]] = [
        (("--state_store=redis://me:secret@host",), "--state_store_password_file"),
        (("--state_store=redis://host?decode_responses=1",), "has decode_responses, but only db"),
        (("--state_store=redis://host?password=secret",), "has password, but only db"),
        (("--state_store=redis://host:port",), "has a wrong port"),
        (("--state_store=http://host",), "http is no URL of a Redis or Valkey server"),
        (("--state_store_password_file=x",), "needs a --state_store"),
        ((store, f"--state_store_password_file={tmp_path / 'none'}"), "password cannot be read"),
    ]
    for flags, problem in refused:
        with pytest.raises(RuntimeError, match=problem):
            harvest(spark_session, pipeline(lambda: None, None), *flags)


def test_servers_that_lose_keys_are_refused(tmp_path: Path, spark_session: Any) -> None:
    evicting = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with (
        redis_server(tmp_path, *evicting) as server,
        pytest.raises(OptionsError, match="maxmemory-policy allkeys-lru"),
    ):
        harvest(spark_session, pipeline(lambda: None, None), f"--state_store={server.url}")
    folder = tmp_path / "replica"
    folder.mkdir()
    with (
        redis_server(folder, "--replicaof", "127.0.0.1", "9") as server,
        pytest.raises(OptionsError, match="is a replica"),
    ):
        harvest(spark_session, pipeline(lambda: None, None), f"--state_store={server.url}")


@pytest.mark.grpc
def test_an_sdk_harness(server: RedisServer, expected: Any, spark_session: Any) -> None:
    flags = ("--environment_type=PROCESS", '--environment_config={"command": ""}')
    found = harvest(
        spark_session, pipeline(lambda: None, None), f"--state_store={server.url}", *flags
    )
    assert found["counts"] == expected["counts"]
    assert found["groups"] == expected["groups"]
