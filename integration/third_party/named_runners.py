"""A pytest plugin for tests that make a ``DirectRunner`` of Beam and give it to their pipelines."""

import apache_beam.runners
import pytest
from apache_beam import pipeline

from integration.validates_runner.runners import UNDER_TEST


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let ``beam.runners.DirectRunner()`` be the runner under test."""
    apache_beam.runners.DirectRunner = lambda: pipeline.create_runner(UNDER_TEST)
