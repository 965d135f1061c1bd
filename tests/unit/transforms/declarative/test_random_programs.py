"""Random programs give the same results as one access after another on plain Python values."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.declared_programs import Runs, RunsAnonymously, expected, programs
from tests.examples import examples
from tests.unit.transforms.declarative.running import Run


@pytest.mark.parametrize("kind", [Runs, RunsAnonymously])
@settings(max_examples=examples(400), deadline=None)
@given(draw=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_programs(kind: Any, draw: random.Random, count: int) -> None:
    records = [("key", program) for program in programs(draw, count)]
    run = Run(kind())
    found = [output for _, chains in records for output in run.element(chains)]
    assert sorted(found, key=repr) == expected(records)
