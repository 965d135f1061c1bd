"""Fixtures of the embedded stage's tests."""

from tests.unit.harness.beam.keyed import running  # noqa: F401  (a fixture)
