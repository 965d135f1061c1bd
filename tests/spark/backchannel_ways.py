"""The ways by which workers tell the driver something, as options of a pipeline."""

import pytest

from tests.spark.harvest import PROCESS

WAYS = [
    pytest.param((), id="socket"),
    pytest.param(("--backchannel=files",), id="files"),
    pytest.param(PROCESS, id="PROCESS"),
]
