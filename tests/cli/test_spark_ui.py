"""What the Spark UI says about a pipeline: the user's step names."""

import json
import socket
import sys
from pathlib import Path

import pytest

from beam_spark_runner.core.time import MAX_US
from tests.cli.programs import lines_of, run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.rare]

SCRIPT = """
    import json, urllib.request
    from pyspark.sql import SparkSession

    port = sys.argv[2]
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.port", port)
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .getOrCreate()
    )
    with beam.Pipeline(argv=OPTIONS[:1]) as p:
        p | beam.Create([1]) | "my first" >> beam.Map(str) | beam.Reshuffle() | (
            "my second" >> beam.Map(str)
        )

    def get(path):
        return json.load(urllib.request.urlopen(
            f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{path}"
        ))

    (application,) = get("")
    jobs = get(f"{application['id']}/jobs")
    queries = get(f"{application['id']}/sql?details=true&planDescription=true")
    print(json.dumps({
        "url": spark.sparkContext.uiWebUrl,
        "jobs": [job.get("description") for job in jobs],
        "queries": [query["description"] for query in queries],
        "plans": [query["planDescription"] for query in queries],
    }))
    spark.stop()
    """


def test_jobs_and_plans_carry_the_steps(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ended = run(tmp_path, SCRIPT, "--port", str(port), **environment)
    assert ended.code == 0, lines_of(ended.err)
    shown = json.loads(ended.out)
    assert shown["url"] == f"http://127.0.0.1:{port}"
    for descriptions in (shown["jobs"], shown["queries"]):
        assert [text for text in descriptions if "my first" in text and "my second" in text]
    (plan,) = [plan for plan in shown["plans"] if "my second" in plan]
    assert "my first" in plan


STREAM = """
    import json, urllib.request
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms.window import FixedWindows
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.port", sys.argv[2])
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .getOrCreate()
    )
    shown = []
    for number in range(2):
        flags = [*OPTIONS[:1], "--streaming", "--spark_metrics", "--job_name=my orders"]
        with beam.Pipeline(options=PipelineOptions(flags)) as p:
            p | beam.Create([("a", number)]) | "my group" >> beam.GroupByKey() | beam.Map(str)
        with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/json/") as answer:
            gauges = json.load(answer)["gauges"]
        shown.append({
            name.rpartition("AccumulatorSource.")[2]: gauge["value"]
            for name, gauge in gauges.items()
        })
    print(json.dumps(shown))
    spark.stop()
    """


def test_epochs_and_watermarks_are_among_sparks_metrics(tmp_path: Path) -> None:
    """Those of the second run take the place of the first one's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ended = run(tmp_path, STREAM, "--port", str(port), **environment)
    assert ended.code == 0, lines_of(ended.err)
    for gauges in json.loads(ended.out):
        assert gauges["beam.my_orders.epoch"] >= 1
        assert gauges["beam.my_orders.output_watermark_ms.my_group"] == MAX_US / 1e3
        assert gauges["beam.my_orders.last_epoch_seconds.Spark"] > 0
        assert not [name for name in gauges if name.startswith("beam.") and name.endswith("_2")]
