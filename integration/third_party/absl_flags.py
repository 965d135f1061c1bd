"""A pytest plugin for tests that read Abseil's flags, which their own main program would parse."""

import sys

import pytest
from absl import flags


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Give each flag its default value."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(sys.argv[:1])
