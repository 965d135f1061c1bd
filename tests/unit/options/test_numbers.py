"""Numbers of every option, on the command line and as JSON: harmless, or an error that names it."""

import argparse
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import struct_pb2

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server.client_options import by_name, read_options
from beam_spark_runner.options import RunnerConfig, server_options
from beam_spark_runner.options.declared import DECLARED
from beam_spark_runner.options.server_options import ServerConfig, parse_server_options
from beam_spark_runner.options.values import MAX_BYTES

UNITS = {"SECONDS", "MILLISECONDS", "BYTES", "MEGABYTES", "SIZE", "TIMERS", "PORT"}
BEAMS = [
    *("parallelism", "max_parallelism", "max_cache_memory_usage_mb"),
    *("sdk_worker_parallelism", "environment_cache_millis", "profile_sample_rate"),
]
NUMERIC = [*BEAMS, *(name for name, each in DECLARED.items() if each.get("metavar") in UNITS)]
NEEDED: dict[str, dict[str, Any]] = {
    "sdk_worker_parallelism": {"environment_type": "PROCESS"},
    "environment_cache_millis": {"environment_type": "PROCESS"},
    "timer_fire_batch_size": {"unaligned_splittable_timers": True},
    "state_store_cache_mb": {"state_store": "unix://s"},
    "async_state_total_buffer_size": {"state_store": "unix://s"},
    "async_state_active_buffer_size": {"state_store": "unix://s"},
    "async_state_active_buffer_timeout_millis": {"state_store": "unix://s"},
}
JSON: list[Any] = [
    *(-1, 0, 0.5, 10**18, 1e300),
    *("x", "nan", "9" * 5000),
    *([], [7], {"a": 1}, True, None),
]
HOSTILE = [*JSON, 10**400]
Read: TypeAlias = RunnerConfig | ServerConfig | str


def shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.20}"


def read_or_error(read: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> Read:
    """Return a configuration, or else the text of the error."""
    try:
        config: Read = read()
    except OptionsError as error:
        return str(error)
    except SystemExit:  # argparse has printed what it does not understand
        return capsys.readouterr().err.splitlines()[-1]
    return config


def needed_flags(option: str) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in NEEDED.get(option, {}).items()
    ]


def numbers_in(config: Any) -> Iterator[tuple[str, float]]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield field.name, value


def check(option: str, found: Read) -> None:
    """Check that a configuration is harmless, or that an error names the option, briefly."""
    if isinstance(found, str):
        assert option in found
        assert len(found) < 6_000  # argparse shows all of a value
        return
    for name, value in numbers_in(found):
        assert 0 <= value <= MAX_BYTES, name
        if name.endswith("_s"):
            assert value < threading.TIMEOUT_MAX, name
    if isinstance(found, RunnerConfig):
        for each in (found.parallelism, found.max_parallelism):
            assert each is None or 1 <= each <= 100_000
        assert 1 <= found.sdk_worker_parallelism <= 100
    else:
        assert max(found.max_concurrent_jobs, found.max_waiting_jobs) <= 100_000


def test_all_options_with_units_are_known() -> None:
    assert {"environment_start_timeout", "group_memory_bytes", "metrics_port"} < set(NUMERIC)
    assert len(NUMERIC) >= 12


@pytest.mark.parametrize("hostile", HOSTILE, ids=shown)
@pytest.mark.parametrize("option", NUMERIC)
def test_numbers_on_the_command_line(
    option: str, hostile: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*needed_flags(option), f"--{option}={hostile}"]
    check(
        option,
        read_or_error(lambda: RunnerConfig.from_options(PipelineOptions(flags)), capsys),
    )


@pytest.mark.parametrize("hostile", JSON, ids=shown)
@pytest.mark.parametrize("option", NUMERIC)
def test_numbers_of_a_client_of_a_job_server(
    option: str, hostile: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    struct = struct_pb2.Struct()
    struct.update({f"beam:option:{option}:v1": hostile, **NEEDED.get(option, {})})
    check(option, read_or_error(lambda: read_options(by_name(struct), ServerConfig())[1], capsys))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_have(number: float) -> None:
    struct = struct_pb2.Struct()
    struct.fields["beam:option:parallelism:v1"].number_value = number
    with pytest.raises(OptionsError):
        by_name(struct)


def server_numbers() -> list[str]:
    actions = server_options._parser()._actions
    return [each.dest for each in actions if isinstance(each, argparse._StoreAction) and each.type]


@pytest.mark.parametrize("hostile", HOSTILE, ids=shown)
@pytest.mark.parametrize("option", server_numbers())
def test_numbers_of_a_job_server(
    option: str, hostile: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--{option}={hostile}"]
    check(option, read_or_error(lambda: parse_server_options(flags), capsys))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("parallelism", "100001"),
        ("max_parallelism", "100001"),
        ("max_cache_memory_usage_mb", str(10**15)),
        ("sdk_worker_parallelism", "101"),
        ("environment_cache_millis", "1e18"),
        ("environment_start_timeout", "1e9"),
        ("sdf_round_budget", "1e9"),
        ("single_task_budget", "1e9"),
        ("operator_coordinator_snapshot_min_pause", "1e9"),
        ("stuck_bundle_timeout", "1e9"),
        ("batch_interval_millis", "1e12"),
        ("group_memory_bytes", str(1 << 51)),
        ("sort_partition_memory", "9999999g"),
        ("timer_fire_batch_size", "1000001"),
        ("default_sdk_harness_log_level", "LOUD"),
        ("default_sdk_harness_log_level", "-5"),
        ("sdk_harness_log_level_overrides", '{"a": "LOUD"}'),
        ("sdk_harness_log_level_overrides", '{"a": [1]}'),
    ],
)
def test_values_beyond_the_limits(option: str, value: str) -> None:
    flags = [
        f"--{name}={each}" for name, each in NEEDED.get(option, {}).items() if each is not True
    ]
    flags += ["--unaligned_splittable_timers"] if "timer" in option else []
    with pytest.raises(OptionsError, match=f"^--{option}: "):
        RunnerConfig.from_options(PipelineOptions([*flags, f"--{option}={value}"]))


@pytest.mark.parametrize("level", ["DEBUG", "warning", "30", "TRACE", "OFF", "NOTSET"])
def test_levels_of_log_lines(level: str) -> None:
    flags = [f"--default_sdk_harness_log_level={level}"]
    RunnerConfig.from_options(PipelineOptions(flags))
    flags = [f'--sdk_harness_log_level_overrides={{"a.b": "{level}"}}']
    RunnerConfig.from_options(PipelineOptions(flags))


@pytest.mark.parametrize("value", [True, "yes", None, [], 1])
def test_nobody_gets_help_from_a_server(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("help", "beam:option:help:v1"):
        struct = struct_pb2.Struct()
        struct.update({name: value})
        with pytest.raises(OptionsError, match=r"^--help: "):
            read_options(by_name(struct), ServerConfig())
    captured = capsys.readouterr()
    assert not captured.out
    assert not captured.err


@pytest.mark.parametrize(
    "name", ["--help", "-h", "h", "", "-", "help=1", "a b", "\0", "parallelism=5 --help", "é"]
)
@pytest.mark.parametrize("value", [True, "x"])
def test_names_that_are_no_options_do_nothing(
    name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    struct = struct_pb2.Struct()
    struct.update({name: value, "parallelism": 3})
    _, config = read_options(by_name(struct), ServerConfig())
    assert config.parallelism == 3
    assert not capsys.readouterr().out
