"""SparkPortableRunner: runs Apache Beam pipelines on Spark, in Python on PySpark.

Start reading at ``runner``. This file imports little: executors and every
program that names the runner import it, but only the driver needs the rest.
"""

from typing import TYPE_CHECKING

from beam_spark_runner import import_hook
from beam_spark_runner.core.version import VERSION as __version__

if TYPE_CHECKING:
    from beam_spark_runner.options import SparkPortableRunnerOptions
    from beam_spark_runner.plans import show_plan
    from beam_spark_runner.runner import SparkPortableRunner

__all__ = ["SparkPortableRunner", "SparkPortableRunnerOptions", "__version__", "show_plan"]

# An installed package installs the hook when Python starts (build_support/backend.py). This call
# does so for a source checkout, or for an archive that is only on the path.
import_hook.install()


def __getattr__(name: str) -> object:
    """Import what only drivers use when it is first accessed (PEP 562)."""
    if name == "SparkPortableRunner":
        from beam_spark_runner.runner import SparkPortableRunner

        return SparkPortableRunner
    if name == "SparkPortableRunnerOptions":
        from beam_spark_runner.options import SparkPortableRunnerOptions

        return SparkPortableRunnerOptions
    if name == "show_plan":
        from beam_spark_runner.plans import show_plan

        return show_plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
