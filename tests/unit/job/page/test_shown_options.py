"""Options on the page, without what is secret in them."""

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.job.page.gathering import options_of
from beam_spark_runner.options import RunnerConfig

SECRET = "hunter2"


def test_secrets_are_hidden() -> None:
    flags = [
        f"--spark_master_url=sc://host:15002/;token={SECRET}",
        f"--spark_conf=spark.executor.extraJavaOptions=-DtrustStorePassword={SECRET}",
        f"--spark_conf=spark.hadoop.fs.azure.account.key.some={SECRET}",
        f"--spark_conf=spark.some.password={SECRET}",
        "--spark_conf=spark.executor.cores=3",
    ]
    shown = dict(options_of(RunnerConfig.from_options(PipelineOptions(flags))))
    assert SECRET not in str(shown)
    assert shown["spark_master_url"] == "sc://host:15002"
    assert shown["spark.executor.cores"] == "3"
