"""How workers send messages to the driver, as options of a pipeline."""

import pytest

from tests.harvest import PROCESS

TRANSPORTS = [
    pytest.param((), id="socket"),
    pytest.param(("--backchannel=files",), id="files"),
    pytest.param(PROCESS, id="PROCESS", marks=pytest.mark.rare),
]
