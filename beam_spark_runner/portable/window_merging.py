"""A stage that merges windows by a WindowFn that only an SDK harness can run."""

from collections.abc import Iterable

from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph, Windowing
from beam_spark_runner.portable.bounded import BoundedReader
from beam_spark_runner.portable.environment_facts import has_remote_code
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.window_questions import WindowQuestions

_WINDOWS = IterableCoder(BytesCoder())
_QUESTION = TupleCoder([BytesCoder(), _WINDOWS])


def coded_question(windows: Iterable[bytes]) -> bytes:
    """Encode the input of the stage: KV<nonce, windows>. Windows are encoded as on edges."""
    return bytes(_QUESTION.encode((b"", list(windows))))


def decoded_answer(answer: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Return each merged window with the windows that were merged into it.

    The stage emits KV<nonce, KV<unmerged windows, KVs of a merged window and its parts>>.

    Raises:
        MalformedBytesError: The bytes are no such KV.
    """
    reader = BoundedReader(answer)
    reader.prefixed()
    reader.items(BoundedReader.prefixed)
    windows = reader.items(lambda item: (item.prefixed(), item.items(BoundedReader.prefixed)))
    reader.end()
    return windows


def is_of_an_sdk(graph: Graph, windowing: Windowing) -> bool:
    """Whether only an SDK harness may run a strategy's WindowFn.

    With user code in the Python worker, the WindowFn is unpickled there.
    """
    return has_remote_code(graph) and not windowing.is_of_the_model


def describe_window_merging(graph: Graph, windowing: Windowing, step: str) -> StageDescription:
    """Describe the stage for a strategy of which ``is_of_an_sdk`` is true.

    For the runner, input and output of the stage are bytes: see ``coded_question`` and
    ``decoded_answer``.

    Args:
        graph: The graph, with the window coder.
        windowing: The windowing strategy.
        step: The name of the grouping step, which errors are assigned to.

    Source: proto ``StandardPTransforms.DeprecatedPrimitives`` and ``Primitives.MERGE_WINDOWS``.
    """
    proto = beam_runner_api_pb2.WindowingStrategy.FromString(windowing.coded)
    questions = WindowQuestions(graph)
    window = questions.window(windowing.window_coder)
    windows = questions.add(urns.CODER_ITERABLE, window)
    became = questions.add(urns.CODER_KV, window, windows)
    answer = questions.add(urns.CODER_KV, windows, questions.add(urns.CODER_ITERABLE, became))
    return questions.described(
        urns.MERGE_WINDOWS,
        proto.window_fn,
        question=windows,
        answer=answer,
        environment=windowing.environment,
        step=step,
    )
