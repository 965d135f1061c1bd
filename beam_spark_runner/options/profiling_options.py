"""Beam's options for profiles of user code."""

import argparse
import importlib.util

from beam_spark_runner.core.environments import EnvironmentKind
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.values import number


def check_profiling(values: argparse.Namespace, environment: EnvironmentKind) -> None:
    """Check the options that SDK harnesses and Python workers read themselves.

    Args:
        values: See ``read_options``.
        environment: Where user code runs.

    Raises:
        OptionsError: An option would have no effect, or is out of range.
    """
    runs_here = environment in ("embedded", "loopback")
    number("profile_sample_rate", values.profile_sample_rate, 1)
    profiles = [name for name in ("profile_cpu", "profile_memory") if getattr(values, name)]
    if values.profiler_agent and runs_here:
        raise OptionsError(
            "profiler_agent",
            "has no effect here: only the boot program of Beam's containers starts an agent. Use "
            "--profile_cpu or --profile_memory, or --environment_type=DOCKER",
        )
    if not profiles:
        return
    if values.profiler_agent:
        raise OptionsError("profiler_agent", f"cannot be combined with --{profiles[0]}")
    if not values.profile_location:
        raise OptionsError(
            "profile_location",
            f"is required by --{profiles[0]}: a folder or URL that workers can write to",
        )
    if runs_here and values.profile_memory and importlib.util.find_spec("guppy") is None:
        raise OptionsError(
            "profile_memory",
            "needs the package guppy3 on all machines, which is not installed here",
        )
