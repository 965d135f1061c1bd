import logging
import pickle

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
from beam_spark_runner.options import RunnerConfig, SparkPortableRunnerOptions
from beam_spark_runner.options.metrics_address import MetricsAddress


def config(*flags: str, **kwargs: object) -> RunnerConfig:
    return RunnerConfig.from_options(PipelineOptions(list(flags), **kwargs))


def test_nothing_given_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert config() == RunnerConfig(class_archive="/cache/beam-spark-runner")


def test_the_folder_of_class_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert config().class_archive == "/home/me/.cache/beam-spark-runner"
    assert config("--spark_class_archive=off").class_archive is None
    assert config("--spark_class_archive=/there").class_archive == "/there"


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--unaligned_splittable_timers"], "user_timer_batch", 1000),
        (
            ["--unaligned_splittable_timers", "--timer_fire_batch_size=7"],
            "user_timer_batch",
            7,
        ),
        (["--parallel_test_streams"], "parallel_test_streams", True),
        ([], "state_store_cache_bytes", 64 << 20),
        (["--state_store=unix://s", "--state_store_cache_mb=0"], "state_store_cache_bytes", 0),
        (
            ["--state_store=unix://s", "--state_store_cache_mb=5"],
            "state_store_cache_bytes",
            5 << 20,
        ),
        ([], "in_flight", FLIGHT_LIMITS),
        (
            [
                "--state_store=unix://s",
                "--async_state_total_buffer_size=7",
                "--async_state_active_buffer_size=5",
                "--async_state_active_buffer_timeout_millis=3",
            ],
            "in_flight",
            FLIGHT_LIMITS._replace(records=7, batch=5, wait_us=3_000),
        ),
        (["--spark_master_url=spark://h:7077"], "spark_master_url", "spark://h:7077"),
        (["--spark_master_url", "sc://h"], "spark_master_url", "sc://h"),
        pytest.param(
            ["--spark_master_url=local[4]"],
            "spark_master_url",
            "local[4]",
            id="Beam's default, but the user wrote it",
        ),
        (["--parallelism=3"], "parallelism", 3),
        (["--max_parallelism=64"], "max_parallelism", 64),
        (["--autoscale=2..16"], "autoscale", (2, 16)),
        (["--autoscale=3..128", "--parallelism=3"], "autoscale", (3, 128)),
        (["--max_cache_memory_usage_mb=7"], "max_cache_memory_usage_mb", 7),
        pytest.param(
            ["--max_cache_memory_usage_mb=0"],
            "max_cache_memory_usage_mb",
            0,
            id="Beam's default for the cache, but the user wrote it",
        ),
        ([], "group_memory_bytes", None),
        (["--group_memory_bytes=100"], "group_memory_bytes", 100),
        ([], "sort_partition_memory", None),
        (["--sort_partition_memory=64m"], "sort_partition_memory", 64 << 20),
        (["--temp_location=gs://b/t"], "shared_storage", "gs://b/t"),
        (["--checkpoint_dir=hdfs://n:8020/a/"], "checkpoint_dir", "hdfs://n:8020/a"),
        (["--savepoint_path=s3://box/a"], "savepoint_path", "s3a://box/a"),
        pytest.param(
            ["--hdfs_host=n", "--hdfs_port=1", "--hdfs_user=u", "--s3_region_name=r"],
            "store_settings",
            (("region", "r"), ("hdfs_host", "n"), ("hdfs_port", "1"), ("hdfs_user", "u")),
            id="settings of all stores",
        ),
        (["--hdfs_https"], "store_settings", (("hdfs_https", "true"),)),
        (["--hdfs_kerberos"], "store_settings", (("hdfs_kerberos", "true"),)),
        (["--job_name=count"], "job_name", "count"),
        ([], "show_plan", False),
        (["--show_plan"], "show_plan", True),
        (["--progress=off"], "progress", "off"),
        ([], "backchannel", "auto"),
        (["--backchannel=files"], "backchannel", "files"),
        ([], "step_chunks", "auto"),
        (["--step_chunks=off"], "step_chunks", "off"),
        ([], "metrics", None),
        ([], "spark_metrics", False),
        (["--spark_metrics"], "spark_metrics", True),
        (["--metrics_port=0"], "metrics", MetricsAddress(0, "127.0.0.1")),
        (["--metrics_port=9", "--metrics_host=::"], "metrics", MetricsAddress(9, "::")),
        (["--executor_environment=archive"], "executor_environment", "archive"),
        (["--environment_type=EMBEDDED"], "progress", "auto"),
        (["--environment_type=beam:env:embedded_python:v1"], "progress", "auto"),
        ([], "environment", "embedded"),
        (["--environment_type=PROCESS"], "environment", "process"),
        (["--environment_type=EXTERNAL"], "environment", "external"),
        (["--environment_type=loopback"], "environment", "loopback"),
        (["--requirements_file=r.txt"], "environment", "process"),
        (["--setup_file=./setup.py"], "environment", "process"),
        (["--extra_package=p.whl"], "environment", "process"),
        (["--files_to_stage=f"], "environment", "process"),
        (["--save_main_session", "--pickle_library=dill"], "environment", "process"),
        pytest.param(
            ["--save_main_session"],
            "environment",
            "embedded",
            id="cloudpickle has the main session in each function",
        ),
        (["--extra_package=p.whl", "--environment_type=EXTERNAL"], "environment", "external"),
        (["--environment_cache_millis=1500"], "environment_cache_s", 1.5),
        (
            ["--environment_type=LOOPBACK", "--environment_cache_millis=1500"],
            "environment_cache_s",
            0.0,
        ),
        (["--environment_start_timeout=2.5"], "environment_start_timeout_s", 2.5),
        ([], "snapshot_min_pause_s", 180.0),
        (["--operator_coordinator_snapshot_min_pause=2.5"], "snapshot_min_pause_s", 2.5),
        (
            ["--spark_conf=spark.a=1", "--spark_conf", "spark.b=x=y", "--spark_conf=spark.a=2"],
            "spark_conf",
            (("spark.a", "2"), ("spark.b", "x=y")),
        ),
    ],
)
def test_option_becomes_field(flags: list[str], field: str, value: object) -> None:
    assert getattr(config(*flags), field) == value


def test_values_set_by_program_count() -> None:
    made = config(spark_master_url="local[4]", spark_conf={"spark.a": True}, show_plan=True)
    assert made.spark_master_url == "local[4]"
    assert made.spark_conf == (("spark.a", "true"),)
    assert made.show_plan is True


def test_values_from_a_dictionary_count() -> None:
    options = PipelineOptions.from_dictionary({"spark_conf": {"spark.a": "1"}, "parallelism": 2})
    made = RunnerConfig.from_options(options)
    assert (made.spark_conf, made.parallelism) == ((("spark.a", "1"),), 2)


@pytest.mark.parametrize(
    ("flags", "streaming_s", "batch_s"),
    [
        pytest.param([], 1800, 0, id="none is given"),
        pytest.param(["--stuck_bundle_timeout=2.5"], 2.5, 2.5, id="one is given"),
        pytest.param(["--stuck_bundle_timeout=0"], 0, 0, id="never"),
    ],
)
def test_how_long_user_code_may_stand_still(
    flags: list[str], streaming_s: float, batch_s: float
) -> None:
    config = RunnerConfig.from_options(PipelineOptions(flags))
    assert (config.stuck_s(is_streaming=True), config.stuck_s(is_streaming=False)) == (
        streaming_s,
        batch_s,
    )


def test_reading_twice_gives_the_same() -> None:
    options = PipelineOptions([])
    first = RunnerConfig.from_options(options)
    assert RunnerConfig.from_options(options) == first
    assert options.view_as(SparkRunnerOptions).spark_master_url == "local[4]"


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (["--spark_master_url=localhost:7077"], "spark_master_url"),
        (["--spark_conf=spark.a"], "spark_conf"),
        (["--spark_conf=a=b"], "spark_conf"),
        (["--spark_conf={"], "spark_conf"),
        (["--spark_conf=spark.master=local"], "spark_conf"),
        (["--parallelism=0"], "parallelism"),
        (["--autoscale=4"], "autoscale"),
        (["--autoscale=4..2"], "autoscale"),
        (["--autoscale=0..2"], "autoscale"),
        (["--autoscale=1..129"], "autoscale"),
        (["--autoscale=1..65", "--max_parallelism=64"], "autoscale"),
        (["--autoscale=2..8", "--parallelism=9"], "parallelism"),
        (["--timer_fire_batch_size=5"], "timer_fire_batch_size"),
        (["--timer_fire_batch_size=0"], "timer_fire_batch_size"),
        (["--stuck_bundle_timeout=soon"], "stuck_bundle_timeout"),
        (["--stuck_bundle_timeout=-1"], "stuck_bundle_timeout"),
        (["--max_cache_memory_usage_mb=-1"], "max_cache_memory_usage_mb"),
        (["--max_parallelism=-7"], "max_parallelism"),
        (["--parallelism=9", "--max_parallelism=8"], "parallelism"),
        (["--progress=maybe"], "progress"),
        (["--backchannel=tcp"], "backchannel"),
        (["--step_chunks=on"], "step_chunks"),
        (["--metrics_port=-1"], "metrics_port"),
        (["--metrics_host=0.0.0.0"], "metrics_host"),
        (["--metrics_port=0", "--job_endpoint=host:1"], "metrics_port"),
        (["--executor_environment=mine"], "executor_environment"),
        (["--job_endpoint=embed"], "job_endpoint"),
        (["--job_endpoint=host"], "job_endpoint"),
        (["--environment_type=NOWHERE"], "environment_type"),
        (["--environment_config=HOST:1"], "environment_config"),
        (["--sdk_worker_parallelism=2"], "sdk_worker_parallelism"),
        (["--sdk_worker_parallelism=some"], "sdk_worker_parallelism"),
        (["--sdk_worker_parallelism=1.5", "--environment_type=LOOPBACK"], "sdk_worker_parallelism"),
        (["--environment_cache_millis=-1"], "environment_cache_millis"),
        (["--environment_start_timeout=0"], "environment_start_timeout"),
        (
            ["--operator_coordinator_snapshot_min_pause=0"],
            "operator_coordinator_snapshot_min_pause",
        ),
        (["--environment_start_timeout=soon"], "environment_start_timeout"),
        (["--requirements_file=r.txt", "--environment_type=EMBEDDED"], "requirements_file"),
        (["--setup_file=./setup.py", "--environment_type=EMBEDDED"], "setup_file"),
        (["--extra_package=p.tar.gz", "--environment_type=EMBEDDED"], "extra_packages"),
        (["--files_to_stage=f", "--environment_type=EMBEDDED"], "files_to_stage"),
        (
            ["--save_main_session", "--pickle_library=dill", "--environment_type=EMBEDDED"],
            "save_main_session",
        ),
        (["--extra_package=p.whl", "--environment_config={}"], "environment_config"),
        (["--sdk_location=beam.tar.gz"], "sdk_location"),
        (["--spark_submit_uber_jar"], "spark_submit_uber_jar"),
        (["--output_executable_path=x.jar"], "output_executable_path"),
        (["--delivery_guarantee=twice"], "delivery_guarantee"),
        (["--profile_cpu"], "profile_location"),
        (
            ["--profile_cpu", "--profile_location=f", "--profile_sample_rate=2"],
            "profile_sample_rate",
        ),
        (["--profile_memory", "--profile_location=f"], "profile_memory"),
        (["--profiler_agent=memray"], "profiler_agent"),
        (["--profiler_agent=memray", "--environment_type=LOOPBACK"], "profiler_agent"),
        (
            ["--profiler_agent=memray", "--environment_type=DOCKER", "--profile_cpu"],
            "profiler_agent",
        ),
    ],
)
def test_refused(flags: list[str], option: str) -> None:
    with pytest.raises(OptionsError) as caught:
        config(*flags)
    assert caught.value.option == option
    assert str(caught.value).startswith(f"--{option}: ")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--metrics_host=0.0.0.0", "--job_endpoint=h:1"], "metrics_host: .* with --job_endpoint"),
        (
            ["--sdk_worker_parallelism=2", "--environment_type=EMBEDDED"],
            "sdk_worker_parallelism: .* set --environment_type to PROCESS",
        ),
        (
            ["--environment_config=x", "--environment_type=EMBEDDED"],
            "environment_config: .* set --environment_type to PROCESS",
        ),
        (
            ["--environment_config=x", "--extra_package=p.whl"],
            "environment_config: has no effect; set --environment_type, or",
        ),
    ],
)
def test_the_advice_is_possible_with_the_other_options(flags: list[str], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        config(*flags)


def test_config_is_a_value_that_travels() -> None:
    made = config("--spark_conf=spark.a=1")
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(config("--spark_conf=spark.a=1"))


def test_our_options_are_known_to_beam(caplog: pytest.LogCaptureFixture) -> None:
    flags = ["--spark_conf=spark.a=1", "--show_plan", "--progress=off"]
    with caplog.at_level(logging.WARNING):
        found = PipelineOptions(flags).get_all_options(drop_default=True)
    ours = {"spark_conf": ["spark.a=1"], "show_plan": True, "progress": "off"}
    assert ours.items() <= found.items()  # other tests of this process declare some, too
    assert "unparseable" not in caplog.text


def test_all_options_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    options = PipelineOptions(["--parallelism=3", "--progress=off", "--spark_conf=spark.a=1"])
    viewed: list[type[PipelineOptions]] = []
    view_as = PipelineOptions.view_as

    def note(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        viewed.append(cls)
        return view_as(self, cls)

    monkeypatch.setattr(PipelineOptions, "view_as", note)
    RunnerConfig.from_options(options)
    assert len(viewed) == 1, "each view makes a parser, and parses all arguments"


def test_an_option_of_the_program_wins_over_ours() -> None:
    class ProgramOptions(PipelineOptions):  # type: ignore[misc]
        @classmethod
        def _add_argparse_args(cls, parser: object) -> None:
            parser.add_argument("--progress", type=int)  # type: ignore[attr-defined]
            parser.add_argument("--drain_on_sigterm")  # type: ignore[attr-defined]

    try:
        options = PipelineOptions(["--progress=7", "--drain_on_sigterm=SIGUSR1"])
        assert options.get_all_options()["progress"] == 7
        made = RunnerConfig.from_options(options)
        assert (made.progress, made.drains_on_sigterm) == ("auto", False)
        assert "progress" not in dir(options.view_as(SparkPortableRunnerOptions))
    finally:
        # The class must go before other tests parse: Beam finds it by __subclasses__().
        del ProgramOptions
        import gc

        gc.collect()
