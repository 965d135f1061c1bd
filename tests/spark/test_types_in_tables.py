"""All types of Spark SQL, through ``ReadFromSpark`` and ``WriteToSpark``."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import harvest

pytestmark = pytest.mark.spark

EVERY_TYPE = """
SELECT id, id % 2 = 0 AS b, CAST(id AS TINYINT) AS i8, CAST(id AS SMALLINT) AS i16,
       CAST(id AS INT) AS i32, CAST(id AS FLOAT) / 2 AS f, CAST(id AS DOUBLE) / 3 AS d,
       CAST(id AS DECIMAL(20,4)) AS dec, IF(id = 1, NULL, 'größe') AS s,
       CAST('xy' AS BINARY) AS raw, DATE'0001-01-01' AS day,
       TIMESTAMP'2026-01-02 03:04:05.000006+02:00' AS at,
       TIMESTAMP_NTZ'2026-01-02 03:04:05.000006' AS local,
       INTERVAL '1 02:03:04.5' DAY TO SECOND AS iv,
       array(1, NULL, 3) AS arr, map('k', CAST(NULL AS BIGINT), 'l', id) AS m,
       named_struct('x', id,
                    'y', array(named_struct('z', TIMESTAMP'1970-01-01 00:00:01+00:00'))) AS st
FROM range(2)
"""


def row_of_every_type(n: int) -> beam.Row:
    return beam.Row(
        id=n,
        b=n % 2 == 0,
        i8=n,
        i16=n,
        i32=n,
        f=n / 2,
        d=n / 3,
        dec=Decimal(n),
        s=None if n == 1 else "größe",
        raw=b"xy",
        day=datetime.date(1, 1, 1),
        at=Timestamp.from_rfc3339("2026-01-02T01:04:05.000006Z"),
        local=datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        iv=datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5),
        arr=[1, None, 3],
        m={"k": None, "l": n},
        st=beam.Row(x=n, y=[beam.Row(z=Timestamp(1))]),
    )


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.rare), "Asia/Kolkata"])
def test_every_type_comes_in_and_goes_out(spark_session: Any, tmp_path: Path, zone: str) -> None:
    schema = spark_session.sql(EVERY_TYPE).schema.simpleString().removeprefix("struct<")[:-1]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(query=EVERY_TYPE)
        rows | WriteToSpark(path=str(tmp_path / "out"), schema=schema)
        return {"read": rows | beam.Map(lambda row: (row.id, row))}

    settings = {
        "spark.sql.session.timeZone": zone,
        # Spark 3.5 asks which calendar a date before 1582 has.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    }
    for name, value in settings.items():
        spark_session.conf.set(name, value)
    try:
        found = harvest(spark_session, build)
        assert found["read"] == [(n, row_of_every_type(n)) for n in range(2)]
        out = spark_session.read.parquet(str(tmp_path / "out"))
        assert sorted(out.selectExpr("to_json(struct(*))").collect()) == sorted(
            spark_session.sql(EVERY_TYPE).selectExpr("to_json(struct(*))").collect()
        )
        assert f"struct<{schema}>" == out.schema.simpleString()
    finally:
        for name in settings:
            spark_session.conf.unset(name)


TIMES = """
SELECT id, IF(id = 1, NULL, TIME'23:59:59.999999') AS t,
       CAST(TIME'01:02:03.004005' AS TIME(3)) AS milli,
       array(TIME'00:00:00', NULL) AS arr
FROM range(2)
"""


@pytest.fixture
def with_times(spark_session: Any) -> Iterator[Any]:
    """A Spark that has the type TIME, which must be enabled."""
    name = "spark.sql.timeType.enabled"
    if tuple(map(int, spark_session.version.split(".")[:2])) < (4, 1):
        pytest.skip("Spark has TIME since 4.1")
    spark_session.conf.set(name, "true")
    yield spark_session
    spark_session.conf.unset(name)


@pytest.mark.rare
def test_times_come_in_and_go_out(with_times: Any, tmp_path: Path) -> None:
    schema = with_times.sql(TIMES).schema.simpleString().removeprefix("struct<")[:-1]
    assert "t:time(6),milli:time(3),arr:array<time(6)>" in schema

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(query=TIMES)
        rows | WriteToSpark(path=str(tmp_path / "out"), schema=schema)
        return {"read": rows | beam.Map(lambda row: (row.id, row.t, row.milli, row.arr))}

    milli, midnight = datetime.time(1, 2, 3, 4000), datetime.time()
    assert harvest(with_times, build)["read"] == [
        (0, datetime.time(23, 59, 59, 999999), milli, [midnight, None]),
        (1, None, milli, [midnight, None]),
    ]
    out = with_times.read.parquet(str(tmp_path / "out"))
    assert sorted(out.collect()) == sorted(with_times.sql(TIMES).collect())
    assert f"struct<{schema}>" == out.schema.simpleString()
