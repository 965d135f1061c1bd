"""Side inputs whose rows do not come with the reports of tasks, few as they are."""

import pytest

from beam_spark_runner.driving import program_builder


def return_no_rows(patch: pytest.MonkeyPatch) -> None:
    """Have a Spark job gather each side input that has any rows."""
    patch.setattr(program_builder, "RETURNED_BYTES", 0)
    patch.setattr(program_builder, "MIN_RETURNED_BYTES_OF_TASK", 0)
