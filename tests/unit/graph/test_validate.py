"""What golden tests cannot say: their environments are all embedded."""

from dataclasses import replace

import pytest

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.graph.passes import validate
from tests.golden.notation import parse

KEYED = """
Start: impulse() -> start
Pair: pardo(start) -> pairs @py
Count: pardo(pairs) -> counted @py state=count
pairs :: kv<bytes,bytes>
"""


@pytest.mark.parametrize("urn", [urns.ENVIRONMENT_PROCESS, urns.ENVIRONMENT_EXTERNAL])
def test_state_beside_the_worker(urn: str) -> None:
    graph = parse(KEYED)
    beside = {id_: replace(each, urn=urn) for id_, each in graph.environments.items()}
    with pytest.raises(PipelineRefusedError, match="Count: state count, in an SDK harness") as told:
        validate(replace(graph, environments=beside))
    assert len(told.value.problems) == 1
    assert validate(graph) is graph
