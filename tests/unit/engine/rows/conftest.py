"""Fixtures of the tests of writers and readers."""

from tests.unit.engine.rows.written_rows import hashes, memory  # noqa: F401  (fixtures)
