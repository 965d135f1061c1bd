"""Spark Connect 3.5: ``make integration-tables``. Its server is not in PySpark, but on Maven."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyspark
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import OptionsError, TableError
from beam_spark_runner.runner import SparkPortableRunner
from beam_spark_runner.spark.versions import SparkVersion
from beam_spark_runner.transforms import ReadFromSpark
from integration.partition_pipelines import SMALL_SORTS, read_partitions
from integration.pipelines import counters, two_readers
from integration.table_pipelines import (
    COUNT,
    Target,
    check_failed_append,
    check_failures,
    check_modes,
    in_and_out,
)
from tests.connect_server import start_connect_server
from tests.harvest import PROCESS

pytestmark = [
    pytest.mark.connect,
    pytest.mark.skipif(
        SparkVersion.parse(pyspark.__version__) >= (4, 0),
        reason="runs in the environment with Spark 3.5",
    ),
]
SERVER = f"org.apache.spark:spark-connect_2.12:{pyspark.__version__}"
HARNESSES = pytest.mark.parametrize("harness", [(), PROCESS], ids=["embedded", "process"])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    folder = tmp_path_factory.mktemp("connect")
    conf = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    with start_connect_server(folder / "server.log", conf=conf, package=SERVER) as url:
        remote: Any = SparkSession.builder.remote(url).create()
        yield remote
        remote.stop()


def run(session: Any, build: Any, *flags: str) -> Any:
    options = PipelineOptions(list(flags))
    pipeline = beam.Pipeline(runner=SparkPortableRunner(session), options=options)
    build(pipeline)
    result = pipeline.run()
    assert result.wait_until_finish(300_000) == PipelineState.DONE
    return result


def test_random_stages_and_segments(session: Any, tmp_path: Path) -> None:
    result = run(
        session,
        lambda p: two_readers(p, 300, in_two_segments=True),
        f"--temp_location={tmp_path}",
    )
    assert counters(result) == {"drawn": 300}


@HARNESSES
def test_full_window_partitions(session: Any, tmp_path: Path, harness: tuple[str, ...]) -> None:
    flags = ("--parallelism=3", SMALL_SORTS, f"--temp_location={tmp_path}", *harness)
    result = run(session, lambda p: read_partitions(p, 900, 3), *flags)
    assert counters(result) == {"checked": 1}


@HARNESSES
def test_files_in_every_mode(session: Any, tmp_path: Path, harness: tuple[str, ...]) -> None:
    path = str(tmp_path / "out")
    flags = (f"--temp_location={tmp_path}/temp", *harness)
    target = Target(session, {"path": path}, lambda: session.read.parquet(path), flags)
    check_modes(target, partition_by="part")
    check_failures(target)
    check_failed_append(target)


def test_a_table_of_the_catalog(session: Any, tmp_path: Path) -> None:
    session.sql("DROP TABLE IF EXISTS numbers").collect()
    flags = (f"--temp_location={tmp_path}",)
    target = Target(session, {"table": "numbers"}, lambda: session.table("numbers"), flags)
    check_modes(target)
    check_failures(target)


def test_a_frame_and_a_query(session: Any, tmp_path: Path) -> None:
    runner, temp = SparkPortableRunner(session), f"--temp_location={tmp_path}/temp"
    write = {"path": str(tmp_path / "out"), "mode": "overwrite"}
    in_and_out(runner, temp, read={"dataframe": session.range(COUNT)}, write=write)
    in_and_out(runner, temp, read={"query": f"SELECT id FROM range({COUNT})"}, write=write)
    assert session.read.parquet(str(tmp_path / "out")).count() == COUNT // 2


def test_temporary_views_of_the_program_are_not_known(session: Any, tmp_path: Path) -> None:
    """The pipeline has a separate session: this version cannot clone the program's."""
    session.range(3).createOrReplaceTempView("ids")
    with pytest.raises(TableError, match="ids"):
        run(
            session,
            lambda p: p | ReadFromSpark(query="SELECT id FROM ids"),
            f"--temp_location={tmp_path}",
        )


def test_nothing_runs_without_shared_storage(session: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    target = Target(session, {"path": path}, lambda: session.read.parquet(path))
    with pytest.raises(OptionsError, match=r"--temp_location: Spark 3\.5 cannot store rows"):
        target.write(range(3))
    assert not (tmp_path / "out").exists()
    with pytest.raises(OptionsError, match=r"--temp_location: Spark 3\.5 cannot store rows"):
        run(session, lambda p: p | ReadFromSpark(dataframe=session.range(COUNT)))
