"""Spark tables beyond a local session: clusters, Spark Connect, a job server, a database."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import TableError
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from integration.cluster import local_cluster
from integration.postgresql import DRIVER, postgresql
from integration.table_pipelines import (
    COUNT,
    Target,
    check_failures,
    check_modes,
    in_and_out,
)
from tests.connect_server import start_connect_server
from tests.harness.test_job_server import Server

ROOT = Path(__file__).parents[1]


@pytest.mark.cluster
@pytest.mark.parametrize("has_folder", [False, True], ids=["on executors", "in shared storage"])
def test_a_cluster(tmp_path: Path, has_folder: bool) -> None:
    with local_cluster().session("tables") as spark:
        spark.range(COUNT).repartition(6).write.parquet(str(tmp_path / "in"))
        flags = [f"--temp_location={tmp_path}/temp"] if has_folder else []
        in_and_out(
            SparkPortableRunner(spark),
            *flags,
            read={"path": str(tmp_path / "in")},
            write={"path": str(tmp_path / "out")},
        )
        assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT // 2


@pytest.mark.connect
def test_spark_connect(connect_server: str, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    try:
        remote: Any = session  # of another class than a classic one
        runner = SparkPortableRunner(remote)
        frame = session.range(COUNT)
        in_and_out(runner, read={"dataframe": frame}, write={"path": str(tmp_path / "out")})
        assert session.read.parquet(str(tmp_path / "out")).count() == COUNT // 2
        frame.createOrReplaceTempView("ids")
        in_and_out(
            runner,
            read={"query": "SELECT id FROM ids"},
            write={"path": str(tmp_path / "out"), "mode": "overwrite", "format": "orc"},
        )
        assert session.read.orc(str(tmp_path / "out")).count() == COUNT // 2
    finally:
        session.stop()


@pytest.mark.connect
def test_two_connect_servers_on_one_host(connect_server: str, tmp_path: Path) -> None:
    """A DataFrame of the one is no DataFrame of the other, not even of the same name."""
    from pyspark.sql.connect.session import SparkSession

    with start_connect_server(tmp_path / "log") as other:
        ours: Any = SparkSession.builder.remote(connect_server).create()
        theirs: Any = SparkSession.builder.remote(other).create()
        try:
            for session, count in ((ours, 3), (theirs, 5)):
                session.range(count).createOrReplaceTempView("ids")
            frame = theirs.table("ids")

            def build(p: beam.Pipeline) -> None:
                rows = p | ReadFromSpark(dataframe=frame)
                ids = rows | beam.Map(lambda row: row.id)
                assert_that(ids, equal_to([*range(5)]))

            with pytest.raises(TableError, match="belongs to another Spark than"):
                build(beam.Pipeline(runner=SparkPortableRunner(ours)))
            with beam.Pipeline(runner=SparkPortableRunner(theirs)) as p:
                build(p)
        finally:
            theirs.stop()
            ours.stop()


@pytest.fixture
def database() -> Iterator[str]:
    """The JDBC URL of a separate PostgreSQL server."""
    with postgresql() as server:
        yield server.url


# A separate JVM: packages are resolved when it starts.
_PROGRAM = """
import sys
from integration.test_spark_tables import {name}
from beam_spark_runner.spark.session.launch import start_classic

conf = {{"spark.ui.enabled": "false", "spark.jars.packages": {package!r}}}
spark = start_classic("local[2]", "tables", conf)
try:
    {name}(spark, sys.argv[1])
finally:
    spark.stop()
"""


def run_with(package: str, name: str, argument: str) -> None:
    """Run a function of this module in a program whose Spark has a package."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _PROGRAM.format(name=name, package=package),
            argument,
        ],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if re.search(r"unresolved dependenc|UNRESOLVED DEPENDENCIES|download failed", done.stdout):
        pytest.skip(f"Maven does not have {package} here")
    assert done.returncode == 0, done.stdout[-5000:]


def by_jdbc(spark: Any, url: str) -> None:
    """Every mode, what fails, what is missing, and a table that is read in partitions."""
    access = {"url": url, "user": "beam", "driver": "org.postgresql.Driver"}

    def table(name: str) -> Target:
        options = {**access, "dbtable": name}
        load = spark.read.format("jdbc").options(**options).load
        return Target(spark, {"format": "jdbc", "options": options}, load)

    numbers = table("numbers")
    check_modes(numbers)
    check_failures(numbers)
    spark.range(COUNT).write.format("jdbc").options(**access, dbtable="ids").save()
    parts = {"partitionColumn": "id", "lowerBound": 0, "upperBound": COUNT, "numPartitions": 3}
    ids, evens = table("ids").arguments, table("evens")
    read = {"format": "jdbc", "options": {**ids["options"], **parts}}
    in_and_out(SparkPortableRunner(spark), read=read, write=evens.arguments)
    assert evens.ids() == [*range(0, COUNT, 2)]
    with pytest.raises(TableError, match='relation "nowhere" does not exist'):
        table("nowhere").check_read([])
    other = {**ids["options"], "user": "nobody"}
    # Spark 4.3 says no more than that it could not connect; others may say why.
    refused = r"Couldn't connect to the database|role \"nobody\" does not exist"
    with pytest.raises(TableError, match=refused):
        Target(spark, {**ids, "options": other}, evens.load).check_read([])


@pytest.mark.slow
def test_a_database(database: str) -> None:
    run_with(DRIVER, "by_jdbc", database)


@pytest.mark.slow
def test_a_job_server(tmp_path: Path) -> None:
    """The client has no Spark: it names the schema. Its own DataFrame is refused."""
    server = Server(tmp_path)
    try:
        process = ["--environment_type=PROCESS", '--environment_config={"command":""}']

        def build(p: beam.Pipeline) -> None:
            rows = p | ReadFromSpark(query=f"SELECT id FROM range({COUNT})", schema="id BIGINT")
            count = rows | beam.Map(lambda row: row.id) | beam.combiners.Count.Globally()
            assert_that(count, equal_to([COUNT]))
            rows | WriteToSpark(path=str(tmp_path / "out"))

        result = server.submit(build, "--runner=PortableRunner", *process)
        assert result.wait_until_finish() == "DONE"
        assert list((tmp_path / "out").glob("*.parquet"))

        class Frame:
            """Stands for a DataFrame of the client's, which never reaches the server."""

        refused = server.submit(
            lambda p: p | ReadFromSpark(dataframe=Frame(), schema="id BIGINT"),
            *("--runner=PortableRunner", *process),
        )
        with pytest.raises(RuntimeError, match="works only in the process that has the DataFrame"):
            refused.wait_until_finish()
    finally:
        server.program.send(signal.SIGTERM)
        server.program.end()
