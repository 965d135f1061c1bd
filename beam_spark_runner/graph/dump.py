"""Renders a graph as text, for golden tests, for logs, and for observing the passes."""

import json
import re
from collections.abc import Iterable, Iterator

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, PCollectionId
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE
from beam_spark_runner.graph.model import (
    FusedStage,
    Graph,
    PCollection,
    TimestampCombiner,
    Transform,
    Windowing,
)

KINDS: dict[str, str] = {
    urns.IMPULSE: "impulse",
    urns.FLATTEN: "flatten",
    urns.GROUP_BY_KEY: "group_by_key",
    urns.RESHUFFLE: "reshuffle",
    urns.PAR_DO: "pardo",
    urns.ASSIGN_WINDOWS: "window_into",
    urns.MAP_WINDOWS: "map_windows",
    urns.READ: "read",
    urns.TEST_STREAM: "test_stream",
    READ_TABLE: "read_table",
    WRITE_TABLE: "write_table",
    urns.COMBINE_PER_KEY: "combine_per_key",
    urns.COMBINE_PER_KEY_PRECOMBINE: "precombine",
    urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS: "merge_accumulators",
    urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS: "extract_outputs",
    urns.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS: "convert_to_accumulators",
    urns.COMBINE_GROUPED_VALUES: "combine_grouped_values",
    urns.SDF_PAIR_WITH_RESTRICTION: "pair_with_restriction",
    urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS: "split_and_size",
    urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS: "process_sized",
    urns.SDF_TRUNCATE_SIZED_RESTRICTIONS: "truncate_sized",
}
"""Short names; other transforms are shown by their URN."""

WINDOW_FNS: dict[str, str] = {
    urns.WINDOW_FN_GLOBAL: "global",
    urns.WINDOW_FN_FIXED: "fixed",
    urns.WINDOW_FN_SLIDING: "sliding",
    urns.WINDOW_FN_SESSION: "sessions",
}

FLAGS: dict[str, str] = {
    "requires_stable_input": "stable",
    "requires_time_sorted_input": "sorted",
    "finalizes_bundles": "finalizes",
    "needs_all_input": "whole",
    "takes_partition": "partition",
    "breaks_fusion": "breaks",
}
"""Boolean fields of a Transform, and the words for them."""

_PLAIN = re.compile(r"[\w/.~+-]+")


def dump(graph: Graph) -> str:
    """Render a graph, with one line for each transform, collection and stage.

    Payloads are left out, and so are bounded collections of bytes in the
    global window. Local names are shown unless they are ``in`` and ``out``
    (or ``in0``, ``in1``, …, ``side0``, … if there are several).

    Example:
        start: impulse() -> a
        Split: pardo(a, t as iterable) -> words, errors @py breaks
        Group: group_by_key(words) -> groups
        words :: kv<bytes,bytes>, fixed, unbounded
        groups :: kv<bytes,iterable<bytes>>, fixed, unbounded
        stage 0 at a: Split -> words @py
    """
    return "".join(f"{line}\n" for line in _lines(graph))


def coder_text(graph: Graph, coder: CoderId) -> str:
    """Render a coder with its components, such as ``kv<bytes,iterable<varint>>``."""
    model = graph.coders.get(coder)
    if model is None:
        return _quoted(coder)
    kind = model.urn.removeprefix("beam:coder:").partition(":")[0]
    if not model.components:
        return kind
    return f"{kind}<{','.join(coder_text(graph, part) for part in model.components)}>"


def _lines(graph: Graph) -> Iterator[str]:
    for requirement in graph.requirements:
        yield f"requires {requirement}"
    for id_, transform in graph.transforms.items():
        yield f"{_quoted(id_)}: {_transform(graph, id_, transform)}"
    for collection, model in graph.pcollections.items():
        text = _collection(graph, model)
        if text != "bytes":
            yield f"{_quoted(collection)} :: {text}"
    for number, stage in enumerate(graph.stages):
        yield f"stage {number} {_stage(stage)}"


def _transform(graph: Graph, id_: str, transform: Transform) -> str:
    kind = KINDS.get(transform.urn, _quoted(transform.urn))
    inputs = [
        *_labels(transform.main_inputs.items(), "in"),
        *(
            f"{text} as {_access_pattern(pattern)}"
            for text, pattern in zip(
                _labels(((n, transform.inputs[n]) for n in transform.side_inputs), "side"),
                transform.side_inputs.values(),
                strict=True,
            )
        ),
    ]
    words = [f"{kind}({', '.join(inputs)})"]
    if transform.outputs:
        words += ["->", ", ".join(_labels(transform.outputs.items(), "out"))]
    if transform.environment is not None:
        words.append(f"@{_quoted(transform.environment)}")
    if transform.name != id_:
        words.append(f"name={_quoted(transform.name)}")
    if transform.accumulator_coder is not None:
        words.append(f"accumulator={coder_text(graph, transform.accumulator_coder)}")
    if transform.restriction_coder is not None:
        words.append(f"restriction={coder_text(graph, transform.restriction_coder)}")
    if transform.state_ids:
        words.append(f"state={','.join(map(_quoted, transform.state_ids))}")
    if transform.timer_families:
        words.append(f"timers={','.join(map(_quoted, transform.timer_families))}")
    words += [word for flag, word in FLAGS.items() if getattr(transform, flag)]
    return " ".join(words)


def _labels(items: Iterable[tuple[str, PCollectionId]], default: str) -> list[str]:
    pairs = list(items)
    alone = len(pairs) == 1 and default != "side"
    return [
        _quoted(collection)
        if local_name == (default if alone else f"{default}{number}")
        else f"{_quoted(local_name)}={_quoted(collection)}"
        for number, (local_name, collection) in enumerate(pairs)
    ]


def _access_pattern(urn: str) -> str:
    return _quoted(urn.removeprefix("beam:side_input:").removesuffix(":v1"))


def _collection(graph: Graph, collection: PCollection) -> str:
    parts = [coder_text(graph, collection.coder)]
    windowing = _windowing(graph.windowings[collection.windowing])
    if windowing != "global":
        parts.append(windowing)
    if not collection.is_bounded:
        parts.append("unbounded")
    return ", ".join(parts)


def _windowing(windowing: Windowing) -> str:
    words = [WINDOW_FNS.get(windowing.window_fn_urn, _quoted(windowing.window_fn_urn))]
    if windowing.window_fn_parameters:
        words.append(f"by={_quoted(windowing.window_fn_parameters)}")
    if windowing.merges:
        words.append("merging")
    if not windowing.trigger_is_default:
        words.append(f"trigger={_quoted(windowing.trigger)}")
    if windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
        words.append(f"at={windowing.timestamp_combiner.value}")
    return " ".join(words)


def _stage(stage: FusedStage) -> str:
    words = [f"at {_quoted(stage.input)}:", *map(_quoted, stage.transforms)]
    if stage.outputs:
        words += ["->", ", ".join(map(_quoted, stage.outputs))]
    if stage.environment is not None:
        words.append(f"@{_quoted(stage.environment)}")
    return " ".join(words)


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
