"""A stage that merges or maps windows in an SDK harness, since only its SDK knows the windows.

Its input and output are KVs of a nonce and a question or answer, which are bytes to the runner.
Within these bytes, each window is prefixed with its length.
"""

from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, EnvironmentId, PCollectionId, TransformId
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.environment_facts import coded_environment
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import WireCoders

_SOURCE, _ASK, _SINK = TransformId("source"), TransformId("ask"), TransformId("sink")
_IN, _OUT = PCollectionId("questions"), PCollectionId("answers")
_GLOBAL = "global"


class WindowQuestions:
    """Builds the description of such a stage.

    Args:
        graph: The graph, with the coders of windows.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(id="ask-about-windows")
        self._wire = WireCoders(graph, self._descriptor.coders)

    def window(self, id_: CoderId) -> CoderId:
        """Add the coder for windows of the coder ``id_`` within questions and answers."""
        return self.add(urns.CODER_LENGTH_PREFIX, self._wire.window(id_))

    def add(self, urn: str, *components: CoderId) -> CoderId:
        """Add a coder, under an id that no coder of a pipeline has."""
        id_ = CoderId(f"asking:{urn.split(':')[2]}({','.join(components)})")
        self._descriptor.coders[id_].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=urn), component_coder_ids=components
            )
        )
        return id_

    def described(
        self,
        urn: str,
        fn: beam_runner_api_pb2.FunctionSpec,
        *,
        question: CoderId,
        answer: CoderId,
        environment: EnvironmentId | None,
        step: str,
    ) -> StageDescription:
        """Return the description of the stage.

        Args:
            urn: The URN of the transform that answers.
            fn: The function of the transform, which is its payload.
            question: The coder of questions, without the nonce.
            answer: The coder of answers, without the nonce.
            environment: The environment in which the stage runs.
            step: The name of the step which errors are assigned to.
        """
        add, descriptor = self.add, self._descriptor
        nonce, everywhere = add(urns.CODER_BYTES), add(urns.CODER_GLOBAL_WINDOW)
        edges = {
            collection: add(urns.CODER_LENGTH_PREFIX, add(urns.CODER_KV, nonce, coder))
            for collection, coder in ((_IN, question), (_OUT, answer))
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
            grpc_port = beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder_id)
            return bytes(grpc_port.SerializeToString(deterministic=True))

        for transform, kind, payload, inputs, outputs in (
            (_SOURCE, urns.GRPC_SOURCE, port(_IN), {}, {"out": _IN}),
            (_ASK, urn, fn.SerializeToString(), {"in": _IN}, {"out": _OUT}),
            (_SINK, urns.GRPC_SINK, port(_OUT), {"in": _OUT}, {}),
        ):
            descriptor.transforms[transform].CopyFrom(
                beam_runner_api_pb2.PTransform(
                    unique_name=step if transform == _ASK else transform,
                    spec=beam_runner_api_pb2.FunctionSpec(urn=kind, payload=payload),
                    inputs=inputs,
                    outputs=outputs,
                )
            )
        return StageDescription(
            coded_descriptor=descriptor.SerializeToString(deterministic=True),
            source=_SOURCE,
            sinks={_SINK: _OUT},
            step_names={_ASK: step},
            coded_environment=coded_environment(self._graph, environment),
        )
