"""Declarative steps that leave requests for the next epoch, with a Redis server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner.engine.stages import opening
from beam_spark_runner.harness.beam.declarative_keys import KeysInFlight
from beam_spark_runner.transforms import DeclarativeKeyedProcess
from tests.declared import Lookups
from tests.declared_programs import expected
from tests.harvest import harvest
from tests.pipelines.test_keys_in_flight import KINDS, new_ids, records, running
from tests.state_store.servers import RedisServer, redis_server

FLAG = "--unaligned_state_requests"


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
    restore = KeysInFlight.restore

    def counted(keys: KeysInFlight, coded: Any) -> None:
        counts.append(len(coded))
        restore(keys, coded)

    monkeypatch.setattr(KeysInFlight, "restore", counted)
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


def test_without_a_store_it_is_refused(spark_session: Any) -> None:
    with pytest.raises(Exception, match="no effect without a --state_store"):
        harvest(spark_session, new_ids, FLAG)
