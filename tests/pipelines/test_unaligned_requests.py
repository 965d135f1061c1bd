"""Declarative steps that leave requests for the next epoch, with a Redis server."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner import SparkPortableRunner, savepoint
from beam_spark_runner.engine.stages import opening
from beam_spark_runner.harness.beam.declarative import DeclarativeParDo
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    KeyedProcess,
    MapState,
)
from tests.declared import Lookups
from tests.declared_programs import expected
from tests.harvest import harvest, harvest_on
from tests.pipelines.test_keys_in_flight import KINDS, new_ids, records, running
from tests.spark.restarting import Rescaled, StoppedError, stopping_after
from tests.state_store.servers import RedisServer, redis_server

FLAG = "--unaligned_state_requests"
KEYS = 50


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Have steps leave what they can, and count the records that are continued."""
    monkeypatch.setattr(
        opening, "_leaves_after_us", lambda context: None if context.task.epoch.drains else 0
    )
    counts: list[int] = []
    restore = DeclarativeParDo.restore

    def counted(step: DeclarativeParDo, coded: Any) -> None:
        counts.append(len(coded))
        restore(step, coded)

    monkeypatch.setattr(DeclarativeParDo, "restore", counted)
    yield counts
    assert counts


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(
    seed: int, server: RedisServer, spark_session: Any, restored: list[int]
) -> None:
    given = records(seed)
    found = harvest(spark_session, running(given), f"--state_store={server.url}", FLAG)
    for label in KINDS:
        assert sorted(found[label], key=repr) == expected(given), label


@pytest.mark.usefixtures("restored")
def test_timers_and_maps(server: RedisServer, spark_session: Any) -> None:
    found = harvest(spark_session, new_ids, f"--state_store={server.url}", FLAG)
    assert sorted(found["new"], key=repr) == sorted(
        harvest(spark_session, new_ids)["new"], key=repr
    )


def test_what_is_left_holds_the_watermark(
    server: RedisServer, spark_session: Any, restored: list[int]
) -> None:
    """A grouping downstream fires each window once, with all that was left on the way."""
    keys = 200

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for time, value in ((0, -60), (11, 50), (12, 7), (31, 3)):
            events.add_elements([TimestampedValue((f"{key}", value), time) for key in range(keys)])
            events.advance_watermark_to(time + 1)
        played = p | events.advance_watermark_to_infinity()
        pairs = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        groups = (
            pairs
            | DeclarativeKeyedProcess(Lookups())
            | beam.Map(lambda found: (found[1], found[0]))
            | beam.WindowInto(FixedWindows(10))
            | beam.GroupByKey()
            | beam.MapTuple(lambda value, found: (value, len([*found])))
        )
        return {"groups": groups}

    found = harvest(spark_session, build, f"--state_store={server.url}", FLAG)
    assert sorted(found["groups"]) == [(3, keys), (7, keys), (50, keys)]
    assert max(restored) > 10


def lookups(p: beam.Pipeline) -> dict[str, Any]:
    events = Stream()
    for time, value in ((0, -60), (1, 50), (2, 7), (3, 3)):
        events.add_elements([TimestampedValue((f"{key}", value), time) for key in range(KEYS)])
        events.advance_watermark_to(time + 1)
    played = p | events.advance_watermark_to_infinity()
    pairs = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
    return {"found": pairs | DeclarativeKeyedProcess(Lookups())}


EXPECTED = sorted((f"{key}", value, 100) for key in range(KEYS) for value in (3, 7, 50))


def test_another_number_of_partitions(
    server: RedisServer, spark_session: Any, tmp_path: Path, restored: list[int]
) -> None:
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}", FLAG)
    runner = Rescaled(SparkPortableRunner(spark_session), 2, (2, 3, 8, 2, 1))
    found = harvest_on(runner, lookups, *flags)
    assert sorted(found["found"]) == EXPECTED
    assert max(restored) > 10


class WithFlags(SparkPortableRunner):
    """Runs a pipeline with some flags after the others; all runs but the last one stop early."""

    def __init__(self, spark_session: Any, *flags: tuple[str, ...]) -> None:
        super().__init__()
        self._runner, self._flags = SparkPortableRunner(spark_session), flags

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        *first, last = (PipelineOptions([*flags]) for flags in self._flags)
        for each in first:
            with stopping_after(2), pytest.raises(StoppedError):
                self._run(pipeline, each).wait_until_finish()
        self.before_last()
        return self._run(pipeline, last)

    def before_last(self) -> None:
        """Is called once the last run but one has stopped."""

    def _run(self, pipeline: Any, options: PipelineOptions) -> Any:
        return self._runner.run_portable_pipeline(copy.deepcopy(pipeline), options)


@pytest.mark.usefixtures("no_state_store_by_default")
def test_the_next_run_may_have_no_state_store(
    server: RedisServer,
    spark_session: Any,
    tmp_path: Path,
    restored: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It then processes first what was left."""
    continued: list[int] = []
    original = DeclarativeParDo._continue

    def counted(step: DeclarativeParDo, key: Any, items: Any) -> None:
        continued.append(len(items))
        original(step, key, items)

    monkeypatch.setattr(DeclarativeParDo, "_continue", counted)
    checkpoint = f"--checkpoint_dir={tmp_path / 'checkpoint'}"
    remote = (checkpoint, f"--state_store={server.url}", FLAG)
    local = (checkpoint,)
    runner = WithFlags(spark_session, remote, remote, local, remote, remote, local)
    found = harvest_on(runner, lookups, checkpoint)
    assert sorted(found["found"]) == EXPECTED
    assert max(restored) > 10
    assert sum(continued) > 10


def test_a_savepoint_has_what_is_left(
    server: RedisServer, spark_session: Any, tmp_path: Path, restored: list[int]
) -> None:
    store = f"--state_store={server.url}"
    first, copied, second = (f"{tmp_path / name}" for name in ("first", "copy", "second"))
    runner = WithFlags(
        spark_session,
        *[(store, FLAG, f"--checkpoint_dir={first}")] * 2,
        (store, f"--checkpoint_dir={second}", f"--savepoint_path={copied}"),
    )
    counts = []

    def copies() -> None:
        counts.append(len(restored))
        assert savepoint.main([f"--checkpoint_dir={first}", f"--savepoint_path={copied}"]) == 0

    runner.before_last = copies  # type: ignore[method-assign]
    found = harvest_on(runner, lookups)
    assert sorted(found["found"]) == EXPECTED
    assert restored[counts[0]] > 10  # at the start from the savepoint


class Process(KeyedProcess):
    """Looks up two entries, in some version of its code."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version


class Declared(Process):
    def declare_process(self, ctx: DeclarationContext) -> Any:
        version = self.version
        coder = StrUtf8Coder() if version == "another coder" else VarIntCoder()
        number = ctx.declare_variable(coder, "number", lambda: 0)
        if version == "another order":
            ctx.declare(lambda _: None)
        follow = ctx.declare("follow", lambda _: self.second.get(number.get()))
        length = ctx.declare(len)
        name = "renamed" if version in ("renamed", "was") else "emit"
        was = ("emit",) if version == "was" else ()
        emit = ctx.declare(name, lambda found: ctx.output((ctx.key, version, found)), was=was)

        def element(pair: tuple[str, int]) -> Any:
            if pair[1] >= 0:
                number.set(pair[1])
                found = self.first.get(pair[1]).then_compose(follow)
                return found.then_apply(length).then_accept(emit)
            for each in range(100):
                self.first.put(each, "x" * 200)
                self.second.put(each, "y" * 300)
            return ctx.completed()

        return element


class Undeclared(Process):
    def process(self, ctx: DeclarationContext, element: tuple[str, int]) -> None:
        self.first.get(element[1]).then_compose(lambda _: self.second.get(element[1])).then_accept(
            lambda found: ctx.output((ctx.key, self.version, len(found)))
        )


def in_version(version: str) -> Any:
    process = (Undeclared if version == "undeclared" else Declared)(version)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for time, value in ((0, -1), (1, 50), (2, 7)):
            events.add_elements([TimestampedValue((f"{key}", value), time) for key in range(KEYS)])
            events.advance_watermark_to(time + 1)
        played = p | events.advance_watermark_to_infinity()
        pairs = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        return {"found": pairs | "Step" >> DeclarativeKeyedProcess(process)}

    return build


REFUSED = {
    "renamed": "the callback 'emit', which it does not declare",
    "another order": "callback 1 of 1 without a name, which it does not declare",
    "another coder": "the variable 'number' with the coder VarIntCoder, which it does not",
    "undeclared": "the callback 'emit', which it does not declare",
}


@pytest.mark.usefixtures("restored")
def test_another_version_must_declare_what_is_stored(
    server: RedisServer, spark_session: Any, tmp_path: Path
) -> None:
    """It is refused before anything runs, and the earlier version continues."""
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}", FLAG)
    with stopping_after(3), pytest.raises(StoppedError):
        harvest(spark_session, in_version("first"), *flags)
    for version, message in REFUSED.items():
        with pytest.raises(IncompatibleCheckpointError) as raised:
            harvest(spark_session, in_version(version), *flags)
        assert message in str(raised.value), version
        assert "was=" in str(raised.value)
    found = harvest(spark_session, in_version("was"), *flags)["found"]
    assert {version for _, version, _ in found} == {"was"}
    assert {key for key, _, _ in found} == {f"{key}" for key in range(KEYS)}


@pytest.mark.usefixtures("no_state_store_by_default")
def test_without_a_store_it_is_refused(spark_session: Any) -> None:
    with pytest.raises(Exception, match="no effect without a --state_store"):
        harvest(spark_session, new_ids, FLAG)
