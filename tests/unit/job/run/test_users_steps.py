"""Which step an error names to a user."""

import pickle

import pytest

from beam_spark_runner.core.errors import (
    BundleFailedError,
    RunnerError,
    SparkJobError,
    StuckBundleError,
)
from beam_spark_runner.job.run.users_steps import name_users_step

STEPS = {"Read/Read/Process": "Read", "Score": "Score"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(
            BundleFailedError("Read/Read/Process", "OSError: gone", "its traceback"),
            "Read: OSError: gone\n\nits traceback",
            id="a part",
        ),
        pytest.param(
            BundleFailedError("Score", "OSError: gone", ""), "Score: OSError: gone", id="a step"
        ),
        pytest.param(
            BundleFailedError("Other/Process", "OSError: gone", ""),
            "Other/Process: OSError: gone",
            id="one that is not known",
        ),
        pytest.param(
            StuckBundleError("Read/Read/Process", 60, "line 1"),
            "Read: its code has made no progress for 60 s (--stuck_bundle_timeout). "
            "Its stack:\nline 1\n",
            id="one that is stuck",
        ),
        pytest.param(
            SparkJobError("Read/Read/Process", "no disk"),
            "Spark failed in Read/Read/Process: no disk",
            id="another error",
        ),
    ],
)
def test_an_error_names_the_step_of_the_user(error: RunnerError, text: str) -> None:
    name_users_step(error, STEPS)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == text
