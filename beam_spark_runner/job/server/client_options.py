"""The pipeline options that clients send: which ones apply on a job server, and their parsing."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2
from google.protobuf import json_format, struct_pb2

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.declared import DECLARED
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.storage.urls import is_url

_NAME = re.compile(r"beam:option:(.+):v\d+")
_OPTION = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_OF_CLIENTS = frozenset(
    {
        *("runner", "job_endpoint", "artifact_endpoint", "job_server_timeout"),
        *("job_server_ca", "job_server_cert", "job_server_key", "job_server_token_file"),
        # The pipeline names its environments.
        *("environment_type", "environment_config", "environment_options"),
        *("prebuild_sdk_container_engine", "sdk_location", "output_executable_path"),
        # Files of the client's, which it stages.
        *("requirements_file", "setup_file", "extra_packages", "files_to_stage"),
        "save_main_session",
    }
)
"""Options that only clients obey; the server ignores them."""
_OF_THE_SERVER = frozenset(
    {
        *("spark_master_url", "temp_location", "progress", "show_plan"),
        *("metrics_port", "metrics_host", "job_page_port", "job_page_read_only"),
    }
)
"""Options that the server has its own values for; clients' values are ignored. Beam's client always
sends a Spark master, be it the default only."""
_TYPES = {
    "store_true": beam_job_api_pb2.PipelineOptionType.BOOLEAN,
    "append": beam_job_api_pb2.PipelineOptionType.ARRAY,
}


def by_name(options: struct_pb2.Struct) -> dict[str, Any]:
    """Return the options of a request by their names, without the prefix of their URNs.

    A Struct has no integers: 7 arrives as 7.0, as from Go's SDK. Such numbers become integers
    again, since a Python SDK harness, which may run steps of the same pipeline, refuses 7.0.

    Raises:
        OptionsError: A value cannot be represented in JSON.
    """
    try:
        by_urn = json_format.MessageToDict(options)
    except (json_format.Error, ValueError) as error:
        raise OptionsError("pipeline_options", str(error)) from error
    values = {}
    for urn, value in by_urn.items():
        match = _NAME.fullmatch(urn)
        values[match[1] if match else urn] = _with_integers(value)
    return values


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    return value


def read_options(
    clients_options: Mapping[str, Any], server: ServerConfig
) -> tuple[PipelineOptions, RunnerConfig]:
    """Parse and check the options of a client that the runner obeys.

    Args:
        clients_options: The client's options by name; see ``by_name``.
        server: The server's configuration, which replaces some of them.

    Raises:
        OptionsError: An option is invalid.
    """
    if "help" in clients_options:  # argparse would print all options, and exit
        raise OptionsError("help", "a job server prints no help; leave the option out")
    ignored = _OF_CLIENTS | _OF_THE_SERVER
    # What is no name of an option would be several arguments, or none.
    runners_options = {
        name: value
        for name, value in clients_options.items()
        if name not in ignored and _OPTION.fullmatch(name)
    }
    if not runners_options.get("max_cache_memory_usage_mb"):
        runners_options.pop(
            "max_cache_memory_usage_mb", None
        )  # Python sends Beam's default, 0, if none is given
    for name, settings in DECLARED.items():
        if isinstance(runners_options.get(name), bool) and "action" not in settings:
            runners_options[name] = str(runners_options[name]).lower()
    if str(clients_options.get("environment_type")).upper() == "LOOPBACK":
        runners_options.pop("environment_cache_millis", None)  # the harnesses end with their client
    try:
        options = PipelineOptions.from_dictionary(
            {**runners_options, "environment_type": "PROCESS"}
        )
        config = RunnerConfig.from_options(options)
    except SystemExit as error:  # argparse has printed what it did not understand
        raise OptionsError("pipeline_options", f"an option is wrong: {_words(error)}") from error
    if config.recovers_batch and server.jobs_dir is None:
        raise OptionsError(
            "batch_job_recovery",
            "the job server has no --jobs_dir, where it would store what the pipeline has run; "
            "start it with one, or leave the option out",
        )
    for name in ("checkpoint_dir", "savepoint_path"):
        check_place(name, getattr(config, name))
    if config.savepoint_schedule is not None:
        check_place("savepoint_dir", config.savepoint_schedule.folder)
    return options, dataclasses.replace(
        config,
        shared_storage=server.shared_storage,
        environment_overrides=server.environment_overrides,
        java_class_path=config.java_class_path or server.java_class_path,
        progress="off",
        show_plan=False,
    )


def check_place(option: str, folder: str | None) -> None:
    """Check that a folder does not depend on the working directory of the server.

    Args:
        option: The name of the option, for errors.
        folder: A path or URL. None: the option is not set, which is valid.

    Raises:
        OptionsError: The path is relative.
    """
    if folder is not None and not (is_url(folder) or Path(folder).is_absolute()):
        raise OptionsError(
            option,
            f"{folder!r} must be an absolute path on the job server's machine, or the URL of a "
            "folder in an object store or HDFS",
        )


def _words(error: SystemExit) -> str:
    reason = error.__context__
    return str(reason) if reason is not None else "see the job server's log"


def descriptors() -> Iterator[beam_job_api_pb2.PipelineOptionDescriptor]:
    """Yield descriptors of the runner's own options, for clients without this package."""
    for name, settings in DECLARED.items():
        if name in _OF_THE_SERVER | _OF_CLIENTS:
            continue
        yield beam_job_api_pb2.PipelineOptionDescriptor(
            name=name,
            type=_TYPES.get(settings.get("action", ""), beam_job_api_pb2.PipelineOptionType.STRING),
            description=settings["help"],
            default_value=str(settings["default"]) if "default" in settings else "",
        )
