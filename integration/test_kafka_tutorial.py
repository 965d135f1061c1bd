"""The programs of docs/kafka_tutorial.md: a pipeline that is killed counts each order once."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration.kafka_broker import start_broker
from integration.waiting import newest_epoch, wait_until
from tests.cli.programs import ROOT, Program

pytestmark = pytest.mark.timeout(900)

FOLDER = ROOT / "examples" / "kafka_tutorial"
COUNT = 500
_SCRIPT = """
    import runpy
    sys.argv[1:] = OPTIONS
    runpy.run_path({!r}, run_name="__main__")
    """


def test_the_page_shows_the_pipeline() -> None:
    page = (ROOT / "docs" / "kafka_tutorial.md").read_text()
    assert re.findall(r"```python\n(.*?)```", page, re.DOTALL) == [
        (FOLDER / "counts.py").read_text()
    ]


def test_a_pipeline_that_is_killed_counts_each_order_once(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    (tmp_path / "broker").mkdir()
    with start_broker(tmp_path / "broker") as broker:
        servers = broker.config["bootstrap.servers"]

        def start(name: str) -> Program:
            (tmp_path / name).mkdir()
            return Program(
                tmp_path / name,
                _SCRIPT.format(str(FOLDER / "counts.py")),
                "--spark_master_url=local[2]",
                f"--checkpoint_dir={checkpoints}",
                "--drain_on_sigterm",
                KAFKA_SERVERS=servers,
            )

        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KAFKA_SERVERS": servers}

        def total() -> int:
            """Run totals.py, which prints pairs of a country and its orders, and their sum."""
            out = subprocess.check_output([sys.executable, FOLDER / "totals.py"], env=environment)
            counts = dict(map(ast.literal_eval, out.decode().splitlines()))
            every = counts.pop("total", 0)
            assert every == sum(counts.values())
            return int(every)

        producing = subprocess.Popen(
            [sys.executable, FOLDER / "produce.py", str(COUNT)], env=environment
        )
        wait_until(lambda: "counts" in broker.admin().list_topics(timeout=30).topics, "the topics")
        first = start("first")
        assert first.wait_until(lambda: newest_epoch(checkpoints) > 5)
        first.send(signal.SIGKILL)
        first.end(jvm_was_killed=True)
        seen = newest_epoch(checkpoints)
        second = start("second")
        assert second.wait_until(lambda: newest_epoch(checkpoints) > seen + 5)
        assert producing.wait() == 0
        wait_until(lambda: total() == COUNT, "all windows")
        second.send(signal.SIGTERM)
        ended = second.end()
        assert ended.code == 0, ended.err
        assert total() == COUNT
