"""Assigns exceptions of a stage to a step."""

import contextlib
from collections.abc import Iterator

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.harness.failures import failure_of


class AbandonedError(Exception):
    """The output is no longer needed: the task was cancelled, or its job has ended."""

    _tagged_with_step = True  # so that Beam raises it unchanged, also from within user code


@contextlib.contextmanager
def charged_to(stage_name: str) -> Iterator[None]:
    """Assign exceptions to a step, or to the stage if no step is known."""
    try:
        yield
    except (AbandonedError, RunnerError):
        raise
    except BaseException as error:  # user code may call sys.exit
        raise failure_of(error, stage_name) from error
