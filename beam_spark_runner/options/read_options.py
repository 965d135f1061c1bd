"""Reads the values of options, those of Beam's classes and the runner's own, in one pass.

Each view of Beam's ``PipelineOptions`` makes a parser of its class and parses all arguments: one to
two milliseconds, which a small pipeline notices if every option is read from its own view.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    HadoopFileSystemOptions,
    PipelineOptions,
    PortableOptions,
    ProfilingOptions,
    S3Options,
    SetupOptions,
    StandardOptions,
    StreamingOptions,
    TypeOptions,
    WorkerOptions,
)

from beam_spark_runner.options.declared import SparkPortableRunnerOptions


class EnvironmentOptions(PortableOptions, SetupOptions):  # type: ignore[misc]
    """The options that decide where user code runs."""


_DECLARING = (
    SparkPortableRunnerOptions,
    EnvironmentOptions,
    FlinkRunnerOptions,  # where Beam keeps its parallelism options
    GoogleCloudOptions,  # and its temp_location and job_name
    HadoopFileSystemOptions,
    ProfilingOptions,
    S3Options,
    StandardOptions,
    StreamingOptions,
    TypeOptions,
    WorkerOptions,
)
_RunnerOptions: Any = type("_RunnerOptions", _DECLARING, {})
"""All options that the runner reads, but for those of which it ignores Beam's defaults."""


def read_options(options: PipelineOptions) -> argparse.Namespace:
    """Return the values of the options that the runner reads, by name.

    An option of the runner's is missing if a class of the program's declares one of its name.
    """
    view = options.view_as(_RunnerOptions)
    # An attribute of a view lists and sorts the names of all its options.
    return argparse.Namespace(
        **{name: view._all_options[name] for name in vars(view._visible_options)}
    )


def given_without_defaults(options: PipelineOptions) -> Mapping[str, Any]:
    """Return options whose defaults in Beam are not the runner's; None: not set explicitly.

    Beam's default of ``--spark_master_url`` is ``local[4]``, and that of
    ``--max_cache_memory_usage_mb`` is 0. A view of ``SparkRunnerOptions`` would store its defaults
    in the options, so there is none: values set by the program are used, else the flags are parsed
    without defaults.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--spark_master_url")
    parser.add_argument("--spark_rest_url")
    parser.add_argument("--spark_job_server_jar")
    parser.add_argument("--spark_submit_uber_jar", action="store_true")
    parser.add_argument("--max_cache_memory_usage_mb")
    explicit = vars(parser.parse_known_args(options._flags)[0])
    cache_mb = explicit.pop("max_cache_memory_usage_mb")
    for name in explicit:
        explicit[name] = options._all_options.get(name, explicit[name])
    if cache_mb is None:
        # Beam's default, which a view has stored, or a value set by the program.
        cache_mb = options._all_options.get("max_cache_memory_usage_mb") or None
    return {**explicit, "max_cache_memory_usage_mb": cache_mb}
