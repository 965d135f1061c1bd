"""The progress of Spark jobs, as Spark Connect tells it."""

from typing import Any

import pytest

from beam_spark_runner.observing.batch_line import Counts
from beam_spark_runner.spark.session import spark_progress


def test_no_progress_on_a_client_that_has_no_handlers() -> None:
    assert spark_progress.watch(object(), "tag", is_connect=True) is None


class Client:
    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def registerProgressHandler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:
        self.handlers.remove(handler)


def test_the_counts_of_a_connect_server() -> None:
    reason = "Spark Connect 3.5 does not tell how far it is"
    spark = pytest.importorskip("pyspark.sql.connect.shell.progress", reason=reason)
    client = Client()
    seen_by = spark_progress.watch(client, "tag", is_connect=True)
    assert seen_by is not None
    (handle,) = client.handlers
    assert seen_by.counts() is None
    assert seen_by.count_jobs() is None
    stages = [spark.StageInfo(1, 2, 2, 0, True), spark.StageInfo(2, 4, 1, 0, False)]
    handle(stages=stages, inflight_tasks=1, operation_id="o", done=False)
    assert seen_by.counts() == Counts(1, 2, 3, 6)
    handle(stages=stages, inflight_tasks=0, operation_id="o", done=True)
    assert seen_by.counts() is None
    seen_by.close()
    assert client.handlers == []
