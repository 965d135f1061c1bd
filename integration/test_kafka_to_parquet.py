"""The example of that name: records of a topic in files, once each."""

import json
import runpy
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from integration.kafka_broker import start_broker
from integration.waiting import wait_until
from tests.cli.programs import ROOT

pytestmark = pytest.mark.spark

COUNT = 100


def amounts_in(folder: Path) -> list[tuple[int, float]]:
    """Return id and amount of all rows in the files that are there."""
    paths = folder.glob("part*.parquet")
    rows = [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]
    return sorted((row["id"], row["amount"]) for row in rows)


def test_records_in_files(local_session: Any, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    start = runpy.run_path(str(ROOT / "examples" / "streaming" / "kafka_to_parquet.py"))["start"]
    with start_broker(tmp_path / "broker") as broker:
        broker.create("orders", 2)

        def produce(first: int, after: int) -> None:
            orders = ({"id": each, "amount": each / 2} for each in range(first, after))
            broker.produce("orders", ({"value": json.dumps(order)} for order in orders))

        def has(count: int) -> bool:
            return amounts_in(tmp_path / "out") == [(each, each / 2) for each in range(count)]

        produce(0, COUNT)
        result = start(
            [
                f"--bootstrap_servers={broker.config['bootstrap.servers']}",
                "--topic=orders",
                f"--output={tmp_path}/out/part",
                "--window=2",
                "--max_delay=1",
                "--runner=SparkPortableRunner",
                f"--checkpoint_dir={tmp_path}/checkpoints",
                "--batch_interval_millis=100",
            ]
        )
        try:
            wait_until(lambda: has(COUNT), "the first files")
            produce(COUNT, 2 * COUNT)
            wait_until(lambda: has(2 * COUNT), "the other files")
            result.drain()
            assert result.wait_until_finish() == "DRAINED"
        finally:
            result.cancel()
        assert has(2 * COUNT)
