"""The options that have no name in Beam.

Beam already declares most of what a Spark runner needs, and programs pass those
names to every runner, so they are reused. ``import_hook`` loads this module in the
middle of Beam's own import: from Beam it may import nothing but ``pipeline_options``.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

DEFAULT_ROUND_BUDGET_S = 2
DEFAULT_BATCH_INTERVAL_MS = 500
DEFAULT_TIMER_BATCH = 1000
DEFAULT_STUCK_S = 1800


class SparkPortableRunnerOptions(PipelineOptions):  # type: ignore[misc]
    """Options of SparkPortableRunner that no class of Beam's declares.

    Beam parses the options of all loaded classes together, and argparse takes
    a name that is declared twice for an error. A program's own option wins
    over ours of the same name, so that loading this package breaks nobody.
    """

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        taken = _declared_by_programs(type(parser))
        for name, settings in DECLARED.items():
            if f"--{name}" not in taken:
                parser.add_argument(f"--{name}", **settings)


DECLARED: Mapping[str, Mapping[str, Any]] = {
    "spark_conf": {
        "action": "append",
        "metavar": "KEY=VALUE",
        "help": "A Spark setting, as with spark-submit --conf. May be repeated.",
    },
    "show_plan": {
        "nargs": "?",
        "const": "text",
        "metavar": "FORMAT",
        "help": "Print how the pipeline will run on Spark before it does. FORMAT: text.",
    },
    "environment_start_timeout": {
        "metavar": "SECONDS",
        "help": "How long an SDK harness may take to start and connect. Default: 120.",
    },
    "executor_environment": {
        "default": "auto",
        "metavar": "auto|installed|archive",
        "help": "What Spark workers on a cluster run with: the packages that are installed there; "
        "those of this program, sent as an archive; auto: the latter where Beam is missing.",
    },
    "sdf_round_budget": {
        "default": str(DEFAULT_ROUND_BUDGET_S),
        "metavar": "SECONDS",
        "help": "For how long a splittable DoFn works at first before what is left is spread over "
        "the cluster again; twice as long each further time. 0: never. Default: 2.",
    },
    "group_memory_bytes": {
        "type": int,
        "metavar": "BYTES",
        "help": "How many bytes of large groups of a GroupByKey a task keeps in memory; the rest "
        "goes to disk. Default: 16777216.",
    },
    "drain": {
        "action": "store_true",
        "default": False,
        "help": "Let splittable DoFns truncate their restrictions before they process them: a "
        "source without an end gives what its provider's truncate leaves, by default nothing.",
    },
    "checkpoint_dir": {
        "metavar": "FOLDER",
        "help": "Where a streaming pipeline commits its epochs: a folder that this machine and all "
        "executors share. The same command with the same folder goes on where it was.",
    },
    "batch_interval_millis": {
        "default": str(DEFAULT_BATCH_INTERVAL_MS),
        "metavar": "MILLISECONDS",
        "help": "How long an epoch of a streaming pipeline should take, and at least from the "
        "beginning of one to that of the next. Sources with a backlog take longer ones. "
        f"Default: {DEFAULT_BATCH_INTERVAL_MS}.",
    },
    "unaligned_splittable_timers": {
        "action": "store_true",
        "default": False,
        "help": "Let an epoch of a streaming pipeline be committed while timers of user code that "
        "are due have not fired yet. They fire in the following epochs.",
    },
    "timer_fire_batch_size": {
        "type": int,
        "metavar": "TIMERS",
        "help": "With --unaligned_splittable_timers: how many timers an SDK harness gets at once. "
        f"Default: {DEFAULT_TIMER_BATCH}.",
    },
    "restart": {
        "default": "auto",
        "metavar": "auto|resume|fresh",
        "help": "Whether a streaming pipeline goes on from what an earlier run has committed in "
        "--checkpoint_dir. auto: if there is something; resume: there must be; fresh: there must "
        "be nothing.",
    },
    "checkpoints_after_tasks_finish": {
        "default": "true",
        "metavar": "true|false",
        "help": "Whether epochs of a streaming pipeline are committed although tasks of some steps "
        "have finished while others go on. false: such a pipeline fails. Default: true.",
    },
    "stuck_bundle_timeout": {
        "metavar": "SECONDS",
        "help": "For how long user code may process an element, or wait in a claim, without going "
        "on; then the task fails, with the step and where its code stands. 0: for ever. Default: "
        f"{DEFAULT_STUCK_S} in a streaming pipeline, else 0.",
    },
    "backchannel": {
        "default": "auto",
        "metavar": "auto|files|off",
        "help": "How workers send log lines and metrics while they run. auto: to a port of this "
        "program; by files in --temp_location where they cannot reach it. files: only so.",
    },
    "progress": {
        "default": "auto",
        "metavar": "auto|on|off",
        "help": "A progress line on stderr. auto: if stderr is a terminal.",
    },
}


def _declared_by_programs(parser_class: type[argparse.ArgumentParser]) -> frozenset[str]:
    """Return the option strings of the loaded classes that are neither Beam's nor ours."""
    names: set[str] = set()
    for declaring in PipelineOptions.__subclasses__():
        package = declaring.__module__.partition(".")[0]
        # By name, not by identity: a main session may hold a second copy of a class.
        if package in ("apache_beam", "beam_spark_runner"):
            continue
        scratch = parser_class(add_help=False)
        declaring._add_argparse_args(scratch)
        names.update(scratch._option_string_actions)
    return frozenset(names)
