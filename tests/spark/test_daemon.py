"""The daemon that imports Beam before it forks workers."""

from pathlib import Path

import pytest

from tests.cli.programs import lines_of, run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.rare]


def test_workers_have_beam_at_once_and_randomness_of_their_own(tmp_path: Path) -> None:
    script = """
        from beam_spark_runner.options import RunnerConfig
        from beam_spark_runner.spark.session.open_session import open_session

        def probe(batches):
            import os, sys, random, pyarrow, time
            loaded = "beam_spark_runner.engine.task.task" in sys.modules
            import numpy
            for _ in batches:
                pass
            time.sleep(2)  # so that both partitions need a worker at a time
            yield pyarrow.record_batch(
                {"loaded": [loaded], "pid": [os.getpid()], "parent": [os.getppid()],
                 "numbers": [f"{numpy.random.random()} {random.random()}"]}
            )

        with open_session(RunnerConfig(spark_master_url="local[2]")) as session:
            rows = session.spark.range(0, 2, 1, 2).mapInArrow(
                probe, "loaded boolean, pid long, parent long, numbers string"
            ).collect()
        print(all(row.loaded for row in rows), len({row.pid for row in rows}),
              len({row.parent for row in rows}), len({row.numbers for row in rows}))
        """
    ended = run(tmp_path, script)
    assert (ended.out, lines_of(ended.err)) == ("True 2 1 2\n", [])
