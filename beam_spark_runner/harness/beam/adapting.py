"""What is changed of Beam's own code in every process that runs user code of Python."""

from beam_spark_runner.harness.beam.creation import charge_errors_of_creation
from beam_spark_runner.harness.beam.file_sinks import mend_file_sinks
from beam_spark_runner.harness.beam.restrictions import charge_errors_of_restrictions


def adapt_beam() -> None:
    """Change it, once for all of this process."""
    charge_errors_of_creation()
    charge_errors_of_restrictions()
    mend_file_sinks()
