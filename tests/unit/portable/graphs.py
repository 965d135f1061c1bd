"""Small protos, and short forms of the graphs that are read from them."""

from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.transforms import userstate
from apache_beam.transforms.userstate import on_timer

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph
from tests.unit.portable.pipelines import named


def transform_named(graph: Graph, name: str) -> Any:
    return graph.transforms[named(graph, name)]


def of(*values: object) -> beam.Create:
    return beam.Create(list(values), reshuffle=False)


def bare(ids: list[str], edges: dict[str, tuple[list[str], list[str]]]) -> pb.Pipeline:
    """A proto of nothing but ParDos: id -> (inputs, outputs)."""
    proto = pb.Pipeline(root_transform_ids=ids)
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn")).SerializeToString()
    components = proto.components
    components.coders["c"].spec.urn = urns.CODER_BYTES
    components.environments["e"].urn = "beam:env:embedded_python:v1"
    strategy = components.windowing_strategies["w"]
    strategy.window_coder_id, strategy.window_fn.urn = "c", urns.WINDOW_FN_GLOBAL
    for id_, (inputs, outputs) in edges.items():
        transform = components.transforms[id_]
        transform.unique_name, transform.environment_id = f"step {id_}", "e"
        transform.spec.urn = urns.PAR_DO if inputs else urns.IMPULSE
        transform.spec.payload = payload if inputs else b""
        for group, collections in ((transform.inputs, inputs), (transform.outputs, outputs)):
            for position, collection in enumerate(collections):
                group[str(position)] = collection
                found = components.pcollections[collection]
                found.coder_id, found.windowing_strategy_id = "c", "w"
    return proto


def small() -> pb.Pipeline:
    return bare(["i", "a"], {"i": ([], ["x"]), "a": (["x"], ["y"])})


class Stateful(beam.DoFn):  # type: ignore[misc]
    CELL = userstate.BagStateSpec("bag", BytesCoder())
    SUM = userstate.CombiningValueStateSpec("sum", VarIntCoder(), sum)
    TIMER = userstate.TimerSpec("timer", userstate.TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        cell: Any = beam.DoFn.StateParam(CELL),
        total: Any = beam.DoFn.StateParam(SUM),
        timer: Any = beam.DoFn.TimerParam(TIMER),
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
    ) -> None:
        """Touch nothing."""

    @on_timer(TIMER)  # type: ignore[untyped-decorator]
    def fire(self) -> None:
        """Do nothing."""
