"""Applies all patches of Beam's own code in a process that runs Python user code."""

from beam_spark_runner.harness.beam.creation import charge_errors_of_creation
from beam_spark_runner.harness.beam.file_sinks import patch_file_sinks
from beam_spark_runner.harness.beam.multimaps import patch_multimaps
from beam_spark_runner.harness.beam.splittable_steps import charge_errors_of_restrictions


def patch_beam() -> None:
    """Apply the patches in this process."""
    charge_errors_of_creation()
    charge_errors_of_restrictions()
    patch_file_sinks()
    patch_multimaps()
