"""A server of Spark Connect still runs the write of a client that has died."""

from pathlib import Path

import pytest

from tests.spark.test_session import run_script

_WRITES = """
    import threading
    import time
    from pathlib import Path

    from pyspark.sql import SparkSession

    from beam_spark_runner.core.table_steps import TableWrite
    from beam_spark_runner.recovery.begun_writes import Outcome
    from beam_spark_runner.spark.driver.table_writes import begun_write, open_write
    from beam_spark_runner.spark.session.handle import SessionHandle

    folder = Path(__file__).parent
    target, started = folder / "target", folder / "started"

    def slowly(batches):
        yield from batches
        started.touch()
        time.sleep(300)

    def session():
        spark = SparkSession.builder.create()
        return SessionHandle(spark, owner=None, users_values=None)

    first, second = session(), session()
    schema = first.spark.range(1).schema.json()
    table = TableWrite(path=str(target), format="parquet", mode="append", schema=schema)
    first.spark.range(2).write.parquet(str(target))
    begun = open_write(table, first, "Write")._beginning(1, 5)
    assert begun.session == first.spark.session_id
    errors = []

    def write():
        try:
            rows = first.spark.range(5).mapInArrow(slowly, "id long")
            rows.write.mode("append").parquet(str(target))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    while not started.exists() and thread.is_alive():
        time.sleep(0.05)
    later = begun_write(table, second, "Write").continued(begun)
    assert later.outcome(begun) == Outcome.WRITE_AGAIN
    thread.join(60)
    assert not thread.is_alive()
    assert "OPERATION_CANCELED" in str(errors)
    assert second.spark.read.parquet(str(target)).count() == 2
    first.spark.client.release_session()
    second.interrupt(begun.session)  # it is closed
    second.spark.stop()
    """


@pytest.mark.connect
def test_the_write_is_interrupted(connect_server: str, tmp_path: Path) -> None:
    run_script(_WRITES, tmp_path, SPARK_REMOTE=connect_server)
