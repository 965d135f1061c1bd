"""Maps windows of a step's main input to those of its side inputs.

The pipeline specifies this by a WindowMappingFn, which in most cases only the SDK can run.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from apache_beam.coders import BytesCoder, TupleCoder
from apache_beam.coders.coders import LengthPrefixCoder
from apache_beam.portability import python_urns

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import main_input, windowing
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.portable.bounded import BoundedReader, decode_window
from beam_spark_runner.portable.environment_facts import coded_environment
from beam_spark_runner.portable.payloads import window_mapping_fn
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.window_questions import WindowQuestions
from beam_spark_runner.portable.wire import window_coder_seen_by_the_runner, window_namer

_DEFAULTS = frozenset(
    {
        *(f"beam:go:windowmapping:{kind}:v1" for kind in ("global", "fixed", "sliding")),
        *(f"beam:window_mapping_fn:{kind}:v1" for kind in ("identity", "assign_max_timestamp")),
    }
)
"""The URNs of the default mappings of the Go and TypeScript SDKs, which have no others.

Source: Go ``graphx.getSideWindowMappingUrn``, TypeScript ``internal/urns.ts``.
"""
_QUESTION = TupleCoder([BytesCoder(), LengthPrefixCoder(BytesCoder())])


class MappedBy(Enum):
    """What maps windows of the main input to those of a side input."""

    DEFAULT = "the runner, as SDKs do by default"
    FUNCTION = "a function of Python's, which is called where user code runs: in the Python worker"
    SDK = "the SDK harness, which is asked"


class SideWindow(NamedTuple):
    """A window of a side input.

    Attributes:
        end_us: Its largest timestamp, event time.
        name: Its encoding, see ``portable.wire.window_namer``.
    """

    end_us: int
    name: bytes


def mapped_by(graph: Graph, reader: Transform, local_name: str) -> MappedBy:
    """Return what maps the windows for a side input.

    Args:
        graph: The graph of the pipeline.
        reader: The step that looks the side input up.
        local_name: The local name of the side input.
    """
    side = windowing(graph, reader.inputs[local_name])
    if side.window_fn_urn == urns.WINDOW_FN_GLOBAL:
        return MappedBy.DEFAULT  # there is one window
    if not coded_environment(graph, reader.environment):
        return MappedBy.FUNCTION
    fn = window_mapping_fn(reader, local_name)
    is_default = fn.urn in _DEFAULTS and side.is_of_the_model
    return MappedBy.DEFAULT if is_default else MappedBy.SDK


def pickled_mapping(reader: Transform, local_name: str) -> bytes:
    """Return the pickled mapping function of the Python SDK."""
    return bytes(window_mapping_fn(reader, local_name).payload)


def is_pickled(reader: Transform, local_name: str) -> bool:
    """Whether the mapping is a function that Python's SDK can unpickle."""
    fn = window_mapping_fn(reader, local_name)
    return bool(fn.urn == python_urns.PICKLED_WINDOW_MAPPING_FN)


def describe_window_mapping(graph: Graph, reader: Transform, local_name: str) -> StageDescription:
    """Describe a stage that maps windows where ``mapped_by`` returns ``MappedBy.SDK``.

    For the runner, input and output of the stage are bytes: see ``coded_question`` and
    ``answer_reader``. For the arguments, see ``mapped_by``.

    Source: proto ``StandardPTransforms.Primitives.MAP_WINDOWS``; Java ``WindowMappingFnRunner``.
    """
    questions = WindowQuestions(graph)
    question, answer = (
        questions.window(windowing(graph, collection).window_coder)
        for collection in (main_input(reader), reader.inputs[local_name])
    )
    return questions.described(
        urns.MAP_WINDOWS,
        window_mapping_fn(reader, local_name),
        question=question,
        answer=answer,
        environment=reader.environment,
        step=reader.name,
    )


def coded_question(window: bytes) -> bytes:
    """Encode the input of the stage: KV<nonce, window>. A window is its own nonce.

    Args:
        window: A window of the main input, encoded as on edges.
    """
    return bytes(_QUESTION.encode((window, window)))


def answer_reader(description: StageDescription) -> Callable[[bytes], tuple[bytes, SideWindow]]:
    """Return a decoder for the stage's output: the window of the question, and its mapping.

    The decoder raises MalformedBytesError if the bytes are no KV of a nonce and a window.

    Args:
        description: The description of the stage.
    """
    descriptor = description.descriptor()
    (collection,) = description.sinks.values()
    id_ = descriptor.pcollections[collection].coder_id
    for part in (0, 1, 0):  # length prefix -> KV -> its value, length prefix -> window
        id_ = descriptor.coders[id_].component_coder_ids[part]
    coder = window_coder_seen_by_the_runner(descriptor, id_)
    name = window_namer(coder)

    def read(answer: bytes) -> tuple[bytes, SideWindow]:
        reader = BoundedReader(answer)
        nonce, coded = reader.prefixed(), reader.prefixed()
        reader.end()
        window = decode_window(coder, coded)
        return nonce, SideWindow(window.max_timestamp().micros, name(window))

    return read
