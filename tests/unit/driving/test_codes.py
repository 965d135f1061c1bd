"""The codes in the routes of rows, one for each stage of a level."""

import numpy as np
import pytest

from beam_spark_runner.core import routing
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.graph.passes import BATCH, run_passes
from beam_spark_runner.plan.build import build
from tests.golden.notation import parse


@pytest.mark.parametrize("steps", [10, 254, 255, 600])
def test_a_first_level_of_very_many_stages(steps: int) -> None:
    """Each step waits for the side input, and so is a separate stage."""
    lines = ["Start: impulse() -> start", "Make: pardo(start) -> made @py"]
    lines += ["Total: pardo(start) -> total @py"]
    lines += [f"B{n}: pardo(made, total as iterable) -> out{n} @py" for n in range(steps)]
    graph = run_passes(parse("\n".join(lines)), BATCH)
    plan = build(graph)
    limits = Limits(
        max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 20, cache_bytes=0
    )
    codes = {edge.code for edge in ProgramBuilder(plan, "job", limits).edges.values()}
    assert min(codes) >= routing.FIRST_CODE
    assert max(codes) < routing.REPORT_CODE
    for code in codes:
        assert len(routing.routes_of_keys([b"key"], 1, code)) == 1
        np.int8(code)
