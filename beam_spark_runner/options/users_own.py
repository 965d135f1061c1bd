"""The options of a pipeline that are not the runner's: what a later start must be given again."""

import json
from collections.abc import Mapping
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.options.declared import DECLARED

_OF_RUNNERS = frozenset(
    {
        *("runner", "job_name", "spark_master_url", "parallelism", "max_parallelism"),
        *("temp_location", "staging_location", "max_cache_memory_usage_mb", "job_endpoint"),
        *("environment_cache_millis", "sdk_worker_parallelism", "environment_options"),
        *("default_sdk_harness_log_level", "sdk_harness_log_level_overrides"),
    }
)


def users_own_options(options: PipelineOptions) -> Mapping[str, Any]:
    """Return the options that change what a pipeline computes, by name.

    Those of the runner, and where and how the pipeline runs, may be others in a later start. So may
    values that JSON cannot represent, which are objects of the program.
    """
    own = {}
    for name, value in options.get_all_options(drop_default=True).items():
        if name in DECLARED or name in _OF_RUNNERS:
            continue
        try:
            own[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return own
