"""A stage that merges windows by a WindowFn which only its SDK knows."""

from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, PCollectionId, TransformId
from beam_spark_runner.graph.model import Graph, Windowing
from beam_spark_runner.portable.environments import coded_environment
from beam_spark_runner.portable.stage_description import StageDescription

_SOURCE, _MERGE, _SINK = TransformId("source"), TransformId("merge"), TransformId("sink")
_IN, _OUT = PCollectionId("windows"), PCollectionId("merged")
_GLOBAL = "global"


_WINDOWS = IterableCoder(BytesCoder())
_QUESTION = TupleCoder([BytesCoder(), _WINDOWS])
_MERGED = IterableCoder(TupleCoder([BytesCoder(), _WINDOWS]))
_ANSWER = TupleCoder([BytesCoder(), TupleCoder([_WINDOWS, _MERGED])])


def coded_question(windows: Iterable[bytes]) -> bytes:
    """Encode what the stage reads: KV<nonce, windows>. Windows are as their coder encodes them."""
    return bytes(_QUESTION.encode((b"", list(windows))))


def decoded_answer(answer: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Return each merged window with the windows that became part of it.

    The stage emits KV<nonce, KV<windows that remain, KVs of a merged window and its parts>>.
    """
    _, (_, merged) = _ANSWER.decode(answer)
    return [(window, list(parts)) for window, parts in merged]


def is_of_an_sdk(graph: Graph, windowing: Windowing) -> bool:
    """Whether only an SDK harness can run a strategy's WindowFn.

    With user code in the Spark worker, the WindowFn is unpickled there.
    """
    return coded_environment(graph, windowing.environment) != b""


def describe_window_merging(graph: Graph, windowing: Windowing, step: str) -> StageDescription:
    """Describe the stage for a strategy of which ``is_of_an_sdk`` is true.

    For the runner, what the stage reads and emits are bytes: see ``coded_question`` and
    ``decoded_answer``.

    Args:
        graph: has the window coder.
        windowing: the strategy.
        step: name of the grouping step, which is charged with errors.

    Source: proto ``StandardPTransforms.DeprecatedPrimitives`` and ``Primitives.MERGE_WINDOWS``.
    """
    proto = beam_runner_api_pb2.WindowingStrategy.FromString(windowing.coded)
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(id="merge-windows")
    for id_, coder in _with_components(graph, windowing.window_coder):
        descriptor.coders[id_].CopyFrom(coder)
    add = _Coders(descriptor)
    nonce = add(urns.CODER_BYTES)
    window = add(urns.CODER_LENGTH_PREFIX, windowing.window_coder)
    windows = add(urns.CODER_ITERABLE, window)
    became = add(urns.CODER_KV, window, windows)
    merged = add(urns.CODER_KV, windows, add(urns.CODER_ITERABLE, became))
    everywhere = add(urns.CODER_GLOBAL_WINDOW)
    edges = {
        _IN: add(urns.CODER_LENGTH_PREFIX, add(urns.CODER_KV, nonce, windows)),
        _OUT: add(urns.CODER_LENGTH_PREFIX, add(urns.CODER_KV, nonce, merged)),
    }
    for collection, coder_id in edges.items():
        descriptor.pcollections[collection].CopyFrom(
            beam_runner_api_pb2.PCollection(
                unique_name=collection,
                coder_id=coder_id,
                windowing_strategy_id=_GLOBAL,
                is_bounded=beam_runner_api_pb2.IsBounded.BOUNDED,
            )
        )
    descriptor.windowing_strategies[_GLOBAL].CopyFrom(
        beam_runner_api_pb2.WindowingStrategy(
            window_fn=beam_runner_api_pb2.FunctionSpec(urn=urns.WINDOW_FN_GLOBAL),
            window_coder_id=everywhere,
            trigger=beam_runner_api_pb2.Trigger(default=beam_runner_api_pb2.Trigger.Default()),
        )
    )

    def port(collection: PCollectionId) -> bytes:
        coder_id = add(urns.CODER_WINDOWED_VALUE, edges[collection], everywhere)
        made = beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder_id)
        return bytes(made.SerializeToString(deterministic=True))

    for transform, urn, payload, inputs, outputs in (
        (_SOURCE, urns.GRPC_SOURCE, port(_IN), {}, {"out": _IN}),
        (_MERGE, urns.MERGE_WINDOWS, proto.window_fn.SerializeToString(), {"in": _IN}, {"o": _OUT}),
        (_SINK, urns.GRPC_SINK, port(_OUT), {"in": _OUT}, {}),
    ):
        descriptor.transforms[transform].CopyFrom(
            beam_runner_api_pb2.PTransform(
                unique_name=step if transform == _MERGE else transform,
                spec=beam_runner_api_pb2.FunctionSpec(urn=urn, payload=payload),
                inputs=inputs,
                outputs=outputs,
            )
        )
    return StageDescription(
        coded_descriptor=descriptor.SerializeToString(deterministic=True),
        source=_SOURCE,
        sinks={_SINK: _OUT},
        step_names={_MERGE: step},
        coded_environment=coded_environment(graph, windowing.environment),
    )


class _Coders:
    """Adds coders to a descriptor, under ids that no coder of a pipeline has."""

    def __init__(self, descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
        self._coders = descriptor.coders

    def __call__(self, urn: str, *components: CoderId) -> CoderId:
        id_ = CoderId(f"merging:{urn.split(':')[2]}({','.join(components)})")
        self._coders[id_].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=urn), component_coder_ids=components
            )
        )
        return id_


def _with_components(graph: Graph, id_: CoderId) -> Iterator[tuple[CoderId, Any]]:
    coder = graph.coders[id_]
    yield (
        id_,
        beam_runner_api_pb2.Coder(
            spec=beam_runner_api_pb2.FunctionSpec(urn=coder.urn, payload=coder.payload),
            component_coder_ids=coder.components,
        ),
    )
    for component in coder.components:
        yield from _with_components(graph, component)
