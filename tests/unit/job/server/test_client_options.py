"""Options of clients: what the server obeys, leaves to the client, and decides by itself."""

import dataclasses
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from google.protobuf import struct_pb2

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server.client_options import by_name, descriptors, read_options
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.portable.sdk_options import options_json

SERVER = ServerConfig(shared_storage="/shared")


def sent(*flags: str) -> dict[str, Any]:
    """Return what Beam's client sends, by name."""
    given = PipelineOptions(list(flags)).get_all_options()
    return by_name(JobServiceHandle.encode_pipeline_options(given))


def test_options_of_the_runner_are_read() -> None:
    _, config = read_options(
        sent("--parallelism=3", "--spark_conf=spark.sql.a=b", "--environment_cache_millis=5000"),
        SERVER,
    )
    assert config.parallelism == 3
    assert config.spark_conf == (("spark.sql.a", "b"),)
    assert config.environment_cache_s == 5.0


def test_options_may_be_numbers_in_json() -> None:
    """As Go's SDK sends them, which wants them back."""
    struct = struct_pb2.Struct()
    struct.update({"beam:option:parallelism:v1": -1, "beam:option:max_parallelism:v1": 7})
    struct.update({"beam:option:share:v1": 0.5})
    given = by_name(struct)
    _, config = read_options(given, SERVER)
    assert (config.parallelism, config.max_parallelism) == (None, 7)
    assert options_json(given) == (
        '{"beam:option:max_parallelism:v1": 7, "beam:option:parallelism:v1": -1, '
        '"beam:option:share:v1": 0.5}'
    )


def test_numbers_in_lists_and_objects_may_be_numbers() -> None:
    struct = struct_pb2.Struct()
    struct.update({"beam:option:sizes:v1": [7, 0.5, {"a": [-1]}]})
    assert repr(by_name(struct)) == "{'sizes': [7, 0.5, {'a': [-1]}]}"


def test_a_default_of_beam_s_that_every_client_sends_is_no_wish() -> None:
    _, config = read_options({"max_cache_memory_usage_mb": 0}, SERVER)
    assert config.max_cache_memory_usage_mb == 100
    _, config = read_options({"max_cache_memory_usage_mb": "7"}, SERVER)
    assert config.max_cache_memory_usage_mb == 7


@pytest.mark.parametrize("given", [True, False])
def test_truth_values_may_be_those_of_json(given: bool) -> None:
    _, config = read_options({"checkpoints_after_tasks_finish": given}, SERVER)
    assert config.checkpoints_after_tasks_finish is given
    _, config = read_options({"drain": given, "spark_metrics": given}, SERVER)
    assert (config.drains, config.spark_metrics) == (given, given)


def test_the_server_decides_where_jobs_run() -> None:
    flags = "--spark_master_url=spark://elsewhere:7077", "--temp_location=/clients", "--progress=on"
    _, config = read_options(sent(*flags, "--show_plan"), SERVER)
    assert config.spark_master_url is None
    assert config.shared_storage == "/shared"
    assert (config.progress, config.show_plan) == ("off", False)


def test_a_pipeline_s_class_path_precedes_that_of_the_server() -> None:
    server = dataclasses.replace(SERVER, java_class_path="staged")
    assert read_options(sent(), server)[1].java_class_path == "staged"
    assert read_options(sent("--java_class_path=/j/*"), server)[1].java_class_path == "/j/*"


@pytest.mark.parametrize(
    "flags",
    [
        ["--job_endpoint=localhost:1", "--environment_type=DOCKER", "--environment_config=image"],
        ["--environment_type=EXTERNAL", "--environment_config=localhost:1"],
        ["--requirements_file=there.txt", "--sdk_location=there.tar.gz"],
    ],
)
def test_what_clients_do_is_left_to_them(flags: list[str]) -> None:
    _, config = read_options(sent(*flags), SERVER)
    assert config == read_options(sent(), SERVER)[1]


def test_harnesses_in_clients_are_not_kept() -> None:
    _, config = read_options(
        sent("--environment_type=LOOPBACK", "--environment_cache_millis=5000"), SERVER
    )
    assert config.environment_cache_s == 0.0


@pytest.mark.parametrize(
    "given",
    [
        {"parallelism": "many"},
        {"sdf_round_budget": "-1"},
        {"job_server_timeout": "soon", "sdf_round_budget": "long"},
        {"restart": "perhaps"},
    ],
)
def test_options_that_cannot_be_read_are_errors(given: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        read_options(given, SERVER)


def test_values_that_json_does_not_have_are_errors() -> None:
    struct = struct_pb2.Struct()
    struct.fields["beam:option:parallelism:v1"].number_value = float("nan")
    with pytest.raises(OptionsError, match="pipeline_options"):
        by_name(struct)


def test_names_of_other_forms_are_kept() -> None:
    struct = JobServiceHandle.encode_pipeline_options({"go_options": {"a": [1]}})
    struct.update({"odd": True})
    assert by_name(struct) == {"go_options": {"a": [1.0]}, "odd": True}


def test_clients_without_this_package_are_told_its_options() -> None:
    known = {each.name: each for each in descriptors()}
    assert "spark_conf" in known
    assert "progress" not in known
    assert all(each.description for each in known.values())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("allow_non_deterministic_key_coders", "true", "an option is wrong"),
        ("update_compatibility_version", "latest", "'latest' is not a version of Beam"),
        ("checkpoint_dir", "./checkpoints", "must be an absolute path on the job server's machine"),
        ("savepoint_path", "savepoint", "must be an absolute path on the job server's machine"),
        ("batch_job_recovery", True, "the job server has no --jobs_dir"),
    ],
)
def test_all_options_are_checked_before_a_pipeline_is_taken(
    name: str, value: object, reason: str
) -> None:
    with pytest.raises(OptionsError, match=reason):
        read_options({name: value}, SERVER)


def test_places_that_the_server_has() -> None:
    for place in ("/checkpoints", "s3a://bucket/checkpoints"):
        _, config = read_options({"checkpoint_dir": place}, SERVER)
        assert config.checkpoint_dir == place
