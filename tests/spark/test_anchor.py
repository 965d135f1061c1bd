"""What an anchor adds to an exchange: nothing but where its tasks run."""

from collections.abc import Iterator
from typing import Any

import pytest

from beam_spark_runner.core import routing
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.exchange import exchange
from beam_spark_runner.spark.session.conf import session_settings
from beam_spark_runner.spark.versions import SparkVersion

pytestmark = pytest.mark.spark

PARTITIONS = 5


@pytest.fixture
def session(spark_session: Any) -> Any:
    """A session with the settings of a job."""
    session = spark_session.newSession()
    for key, value in session_settings(SparkVersion.parse(session.version)).items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def anchor(session: Any) -> Iterator[Anchor]:
    anchor = Anchor(session, PARTITIONS)
    yield anchor
    anchor.release()


def places(frame: Any) -> list[tuple[int, int]]:
    found = frame.selectExpr("route", "spark_partition_id() as place").collect()
    return sorted((row["route"], row["place"]) for row in found)


def test_it_has_one_row_in_each_partition(anchor: Anchor) -> None:
    """And one in all for a level without an exchange."""
    assert anchor.has_effect
    routes = routing.routes_to_partitions(routing.CONTROL_CODE, PARTITIONS)
    assert places(anchor.rows) == sorted((route, place) for place, route in enumerate(routes))
    assert anchor.row.rdd.getNumPartitions() == 1
    assert anchor.row.count() == 1
    assert anchor.row.is_cached


def test_rows_are_where_they_would_be_without_it(session: Any, anchor: Anchor) -> None:
    """Through two exchanges, since Spark reads the anchor once in each."""
    rows = session.range(0, 100, 1, 3).selectExpr(
        "1 as dest",
        "id * 7919 as route",
        "0L as `order`",
        "cast(null as binary) as key",
        "cast('' as binary) as value",
    )
    for held in (rows, exchange(rows, PARTITIONS, (), reads_marks_first=True, anchor=anchor)):
        expected = exchange(held, PARTITIONS, (), reads_marks_first=True)
        found = exchange(held, PARTITIONS, (), reads_marks_first=True, anchor=anchor)
        assert found.rdd.getNumPartitions() == PARTITIONS
        assert places(found) == places(expected)


def test_where_rows_are_not_united_in_place_it_has_no_effect(
    session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session.conf.set("spark.sql.unionOutputPartitioning", "false")
    anchor = Anchor(session, PARTITIONS)
    anchor.release()
    assert not anchor.has_effect
    assert "does not run the tasks of a partition where its cached row is" in caplog.text


def is_cached(frame: Any) -> bool:
    return bool(frame.storageLevel.useMemory)


def test_what_is_released_is_not_cached(session: Any) -> None:
    anchor = Anchor(session, PARTITIONS)
    assert is_cached(anchor.rows)
    assert is_cached(anchor.row)
    anchor.release()
    assert not is_cached(anchor.rows)
    assert not is_cached(anchor.row)
