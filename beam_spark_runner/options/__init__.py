"""Pipeline options: those that this package declares, and all of them as one validated value.

``import_hook`` loads this package during Beam's own import: from Beam it may import
only ``pipeline_options``.
"""

from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.options.declared import SparkPortableRunnerOptions

__all__ = ["RunnerConfig", "SparkPortableRunnerOptions"]
