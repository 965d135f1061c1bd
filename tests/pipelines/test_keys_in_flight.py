"""Declarative steps with their state in a Redis server, which process many keys at a time."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.redis_store import RedisStore
from beam_spark_runner.transforms import DeclarativeKeyedProcess
from tests.declared import Lookups, NewIds
from tests.declared_programs import Program, Runs, RunsAnonymously, expected, programs
from tests.harvest import harvest
from tests.state_store.servers import RedisServer, redis_server

EPOCHS = 4
KINDS = {"declared": Runs(), "anonymous": RunsAnonymously()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


def records(seed: int, keys: int = 30) -> list[tuple[str, Program]]:
    draw = random.Random(seed)
    of_keys = [programs(draw, 2 * EPOCHS) for _ in range(keys)]
    return [
        (f"key {key}", of_keys[key][place]) for place in range(2 * EPOCHS) for key in range(keys)
    ]


def running(given: list[tuple[str, Program]]) -> Any:
    part = len(given) // EPOCHS

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for start in range(0, len(given), part):
            some = given[start : start + part]
            events.add_elements([TimestampedValue(each, start) for each in some])
            events.advance_watermark_to(start + 1)
        each = beam.Map(lambda record: record).with_output_types(tuple[str, Any])
        pairs = p | events.advance_watermark_to_infinity() | each
        return {
            label: pairs | label >> DeclarativeKeyedProcess(kind) for label, kind in KINDS.items()
        }

    return build


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int, server: RedisServer, spark_session: Any) -> None:
    given = records(seed)
    found = harvest(spark_session, running(given), f"--state_store={server.url}")
    for label in KINDS:
        assert sorted(found[label], key=repr) == expected(given), label


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--async_state_total_buffer_size=3",), id="few in flight"),
        pytest.param(("--async_state_active_buffer_size=1",), id="one by one"),
        pytest.param(("--async_state_active_buffer_timeout_millis=1",), id="impatient"),
    ],
)
def test_other_limits(flags: tuple[str, ...], server: RedisServer, spark_session: Any) -> None:
    given = records(7, keys=10)
    found = harvest(spark_session, running(given), f"--state_store={server.url}", *flags)
    for label in KINDS:
        assert sorted(found[label], key=repr) == expected(given), label


def test_lookups_share_round_trips(
    server: RedisServer, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = {"processing": 0, "sealing": 0}
    now = ["processing"]
    read, seal = RedisStore.read, KeyedShard.seal

    def counted(store: RedisStore, what: Any) -> Any:
        reads[now[-1]] += 1
        return read(store, what)

    def sealed(shard: KeyedShard, version: Any) -> Any:
        now.append("sealing")
        try:
            return seal(shard, version)
        finally:
            now.pop()

    monkeypatch.setattr(RedisStore, "read", counted)
    monkeypatch.setattr(KeyedShard, "seal", sealed)
    keys = 300

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for time, value in ((0, -60), (1, 50)):
            events.add_elements([TimestampedValue((f"{key}", value), time) for key in range(keys)])
            events.advance_watermark_to(time + 1)
        played = p | events.advance_watermark_to_infinity()
        pairs = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        return {"found": pairs | DeclarativeKeyedProcess(Lookups())}

    flags = (f"--state_store={server.url}", "--parallelism=1")
    found = harvest(spark_session, build, *flags)
    assert sorted(found["found"]) == sorted((f"{key}", 50, 100) for key in range(keys))
    assert reads["processing"] < keys / 2  # one after another, each key takes three and more


def new_ids(p: beam.Pipeline) -> dict[str, Any]:
    events = Stream().with_output_types(tuple[str, str])
    draw = random.Random(1)
    for epoch in range(EPOCHS):
        pairs = [(f"key {draw.randrange(9)}", f"id {draw.randrange(400)}" * 30) for _ in range(200)]
        events.add_elements([TimestampedValue(pair, epoch) for pair in pairs])
        events.advance_watermark_to(epoch)
    played = p | events.advance_watermark_to_infinity()
    elements = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, str])
    return {"new": elements | DeclarativeKeyedProcess(NewIds())}


def test_maps_that_exceed_packs(server: RedisServer, spark_session: Any) -> None:
    found = harvest(spark_session, new_ids, f"--state_store={server.url}")
    assert sorted(found["new"], key=repr) == sorted(
        harvest(spark_session, new_ids)["new"], key=repr
    )
