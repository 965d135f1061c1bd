"""Pipeline options: what we declare, and the one validated form the rest reads.

``import_hook`` loads this package in the middle of Beam's own import: from Beam it may import
nothing but ``pipeline_options``.
"""

from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.options.declared import SparkPortableRunnerOptions

__all__ = ["RunnerConfig", "SparkPortableRunnerOptions"]
