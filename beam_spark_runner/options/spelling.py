"""Finds options that are misspelled, which Beam ignores as arguments of somebody else."""

import argparse
import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.options.declared import DECLARED

_LOGGER = logging.getLogger(__name__)

_OF_BEAM = (
    *("environment_config", "environment_type", "job_endpoint", "job_name", "parallelism"),
    *("max_parallelism", "max_cache_memory_usage_mb", "requirements_file", "runner"),
    *("save_main_session", "sdk_worker_parallelism", "setup_file", "spark_master_url"),
    *("streaming", "temp_location", "transform_name_mapping"),
)
_ALIKE = 0.85  # of 1: one or two letters of a word are wrong, or two have changed places


def warn_of_misspelled(options: PipelineOptions) -> None:
    """Warn of flags that are no options, but almost have the name of one."""
    for name, option in misspelled(options._flags or (), _names_of_all_classes):
        _LOGGER.warning("--%s is not an option and is ignored: did you mean --%s?", name, option)


def misspelled(
    flags: Iterable[str], declared_names: Callable[[], Collection[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the names of misspelled options, and which ones they resemble.

    Example:
        >>> flags = ["--paralelism=4", "--parallel=4", "--input", "x"]
        >>> list(misspelled(flags, lambda: {"parallelism"}))
        [('paralelism', 'parallelism')]

    Args:
        flags: The arguments of the program.
        declared_names: Returns the names of all options, of Beam and of the program; argparse
            accepts their beginnings, too. It is seldom called.
    """
    names = {*DECLARED, *_OF_BEAM}
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0] if flag.startswith("--") else ""
        if name in names:
            continue
        alike = difflib.get_close_matches(name, names, 1, _ALIKE)
        if alike and not any(option.startswith(name) for option in declared_names()):
            yield name, alike[0]


class _Parser(argparse.ArgumentParser):
    """Takes what classes of options declare, without Beam's parser."""

    def add_value_provider_argument(self, *names: Any, **settings: Any) -> None:
        """Add an option whose value may be known only while the pipeline runs."""
        self.add_argument(*names, **settings)


def _names_of_all_classes() -> frozenset[str]:
    """Return the names of the options of all loaded classes."""
    parser = _Parser(add_help=False, conflict_handler="resolve")
    for declaring in PipelineOptions.__subclasses__():
        declaring._add_argparse_args(parser)
    return frozenset(name.removeprefix("--") for name in parser._option_string_actions)
