"""Builds Beam's coder objects from the coder ids of a graph.

Executors do not need this: a stage's descriptor has its coders, and the coder of
a source or sink (a WindowedValueCoder) has those of key, value and window.
"""

from collections.abc import Iterator

from apache_beam.coders import Coder, FastPrimitivesCoder, RowCoder, WindowedValueCoder
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from google.protobuf.message import DecodeError

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError, UnsupportedFeatureError
from beam_spark_runner.core.ids import CoderId, PCollectionId
from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.row_fields import fields_built_by_beam

_MAX_FIELDS = 20_000
"""The most fields of a row coder, as Beam builds it; so many take some tenths of a second."""
_MAX_CODER_LENGTH = 1_000  # characters, in an error
_GROUPING = frozenset({urns.GROUP_BY_KEY, urns.COMBINE_PER_KEY})


class Coders:
    """The coders of one graph, each built once, at its first use.

    Threads: one at a time, since Beam's context is not locked.

    Args:
        graph: The graph.
        may_unpickle: Whether code of the pipeline may run in this process; else its pickled
            coders are treated as those of an unknown SDK.
    """

    def __init__(self, graph: Graph, *, may_unpickle: bool = True) -> None:
        self._graph = graph
        self._unknown: dict[CoderId, str | None] = {}  # see ``_first_unknown``
        self._known_urns = frozenset(Coder._known_urns)
        if not may_unpickle:
            self._known_urns -= {python_urns.PICKLED_CODER}
        self._context = PipelineContext(
            beam_runner_api_pb2.Components(
                coders={
                    id_: beam_runner_api_pb2.Coder(
                        spec=beam_runner_api_pb2.FunctionSpec(urn=coder.urn, payload=coder.payload),
                        component_coder_ids=coder.components,
                    )
                    for id_, coder in graph.coders.items()
                }
            )
        )

    def coder_of(self, id_: CoderId) -> Coder:
        """Build the coder ``id_``.

        Raises:
            UnsupportedFeatureError: It is a coder of another SDK that Python does not have.
            InvalidPipelineError: It does not exist, or does not load in this process.
        """
        if id_ not in self._graph.coders:
            raise InvalidPipelineError("this coder is missing", id_)
        unknown = self._first_unknown(id_)
        if unknown is not None:
            raise UnsupportedFeatureError(f"the coder {unknown}", id_)
        try:
            return self._context.coders.get_by_id(id_)
        except Exception as error:  # unpickling a coder runs user code
            raise InvalidPipelineError(
                f"this coder does not load: {text_of(error)}", id_
            ) from error

    def is_known(self, id_: CoderId) -> bool:
        """Whether the Python SDK knows the coder and all its parts."""
        return id_ in self._graph.coders and self._first_unknown(id_) is None

    def element(self, collection: PCollectionId) -> Coder:
        """Return the coder of the elements without timestamp, windows and pane."""
        return self.coder_of(self._graph.pcollections[collection].coder)

    def window(self, collection: PCollectionId) -> Coder:
        """Return the coder of the elements' windows."""
        windowing = self._graph.windowings[self._graph.pcollections[collection].windowing]
        return self.coder_of(windowing.window_coder)

    def windowed(self, collection: PCollectionId) -> WindowedValueCoder:
        """Return the coder of the elements with timestamp, windows and pane."""
        return WindowedValueCoder(self.element(collection), self.window(collection))

    def key_value_ids(self, collection: PCollectionId) -> tuple[CoderId, CoderId]:
        """Return the ids of the coders of key and value, without building these.

        Raises:
            InvalidPipelineError: the elements are not KVs.
        """
        coder = self._graph.coders[self._graph.pcollections[collection].coder]
        if coder.urn != urns.CODER_KV or len(coder.components) != 2:
            raise InvalidPipelineError(
                f"its elements are not KVs but {coder.urn}",
                self._graph.pcollections[collection].name,
            )
        key, value = coder.components
        return key, value

    def _first_unknown(self, id_: CoderId) -> str | None:
        """Return the URN of a component that Beam's Python SDK has no coder for; None: none."""
        if id_ not in self._unknown:
            self._unknown[id_] = self._find_unknown(id_)
        return self._unknown[id_]

    def _find_unknown(self, id_: CoderId) -> str | None:
        pending, seen = [id_], set()
        rows = []
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            coder = self._graph.coders[current]
            if coder.urn not in self._known_urns:
                return coder.urn
            if coder.urn == urns.CODER_ROW:
                rows.append(current)
            pending.extend(coder.components)
        # Beam builds all components of a coder with it: only now are all known to be harmless.
        for row in rows:
            if problem := self._problem_of_schema(row):
                return f"{urns.CODER_ROW}: {problem}"
        return None

    def _problem_of_schema(self, row: CoderId) -> str | None:
        """Return why Python cannot use a schema, such as an unknown logical type; None: it can."""
        try:
            fields = fields_built_by_beam(self._graph.coders[row].payload)
            if fields > _MAX_FIELDS:
                return "its rows have too many fields, or nest too deep"
            self._context.coders.get_by_id(row)
        except DecodeError:
            return None  # not a valid schema: ``coder_of`` raises the error
        except Exception as error:  # a ValueError, or whatever a logical type raises
            return text_of(error)
        return None


def deterministic_key_coder(coder: Coder) -> Coder:
    """Return the coder that encodes equal rows as equal bytes, or refuses to encode them.

    Beam's client makes a row's coder deterministic, too, but the proto of a RowCoder is
    only a schema: fields of unknown type are then encoded in the order of a dict or set.
    Both encodings can be decoded by either coder.

    Returns:
        ``coder`` itself unless it is such a RowCoder.
    """
    if isinstance(coder, RowCoder) and all(
        field.is_deterministic() or isinstance(field, FastPrimitivesCoder)
        for field in coder.components
    ):
        return coder.as_deterministic_coder("a row that is a key")
    return coder


def check_key_coders(
    graph: Graph, coders: Coders, *, allow_non_deterministic_key_coders: bool = False
) -> None:
    """Refuse to group by bytes that may differ for equal keys.

    Raises:
        InvalidPipelineError: the first of ``key_coder_problems``.
    """
    for problem in key_coder_problems(
        graph, coders, allow_non_deterministic_key_coders=allow_non_deterministic_key_coders
    ):
        raise problem


def key_coder_problems(
    graph: Graph, coders: Coders, *, allow_non_deterministic_key_coders: bool = False
) -> Iterator[InvalidPipelineError]:
    """Yield an error for each step that groups elements without keys or deterministic keys.

    Beam's Python client replaces or refuses such key coders, but only when it builds a
    GroupByKey, which is not so for a CombinePerKey or a pipeline that was built by other means.
    Coders of other SDKs are not checked, as their SDKs do this.

    Source: Beam ``group_by_key_input_visitor``.
    """
    for transform in graph.transforms.values():
        if transform.urn not in _GROUPING and not transform.is_keyed:
            continue
        (collection,) = transform.main_inputs.values()
        try:
            key, _ = coders.key_value_ids(collection)
            if allow_non_deterministic_key_coders or not coders.is_known(key):
                continue
            key_coder = coders.coder_of(key)
        except InvalidPipelineError as error:
            yield InvalidPipelineError(str(error), transform.name)
            continue
        if not deterministic_key_coder(key_coder).is_deterministic():
            described = text_of(key_coder, _MAX_CODER_LENGTH)
            yield InvalidPipelineError(
                f"its keys are encoded by {described}, which is not deterministic: equal keys may "
                "get into different groups. Give the keys a type whose coder is, or pass "
                "--allow_non_deterministic_key_coders",
                transform.name,
            )
