"""``DeclarativeKeyedProcess``, the transform that runs a ``KeyedProcess``.

It is a composite with a URN of SparkPortableRunner, which executes its payload, that of a ParDo.
Other runners execute its expansion.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import registry
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.pvalue import AsSideInput, DoOutputsTuple, PCollection
from apache_beam.transforms.sideinputs import SIDE_INPUT_PREFIX
from apache_beam.transforms.userstate import TimerSpec
from apache_beam.typehints.typehints import TupleConstraint, is_consistent_with
from typing_extensions import override

from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.urns import DECLARATIVE_KEYED_PROCESS, DECLARED
from beam_spark_runner.transforms.declarative.keyed_do_fn import (
    SIDE_INPUT,
    KeyedProcessDoFn,
    tagged,
)
from beam_spark_runner.transforms.declarative.keyed_process import EXPIRATION_TIMER, KeyedProcess
from beam_spark_runner.transforms.declarative.named import DeclarationError

_RESERVED = ("declare_all", "declared_attributes")  # methods that DoFns call
_MAIN = "None"  # the local name of the main output in protos


class DeclarativeKeyedProcess(beam.PTransform):  # type: ignore[misc]
    """Runs a ``KeyedProcess`` over a collection of pairs of key and value, or a pair of these.

    The elements of a key and window, and its timers, are processed one after another.

    Args:
        process: The process.
        side_inputs: Side inputs (``AsDict(…)`` and so on), which callbacks find in
            ``ctx.side_inputs`` by these names.

    Raises:
        DeclarationError: The process declares something that cannot be.

    Example:
        new = ids | DeclarativeKeyedProcess(NewIds())

    Source: Flink ``DeclarativeProcessingInput``, FLIP-455.
    """

    def __init__(
        self, process: KeyedProcess, *, side_inputs: Mapping[str, AsSideInput] | None = None
    ) -> None:
        if not isinstance(process, KeyedProcess):
            raise TypeError(
                f"DeclarativeKeyedProcess needs an instance of KeyedProcess, not {process!r}"
            )
        for name in _RESERVED:
            if getattr(type(process), name) is not getattr(KeyedProcess, name):
                raise DeclarationError(f"{type(process).__name__} must not define {name}")
        super().__init__(f"DeclarativeKeyedProcess({type(process).__name__})")
        self._process = process
        if not isinstance(side_inputs, Mapping | None):
            raise TypeError(
                f"side_inputs must be a dict of AsDict(…) or the like by name, not {side_inputs!r}"
            )
        self._sides = dict(side_inputs or {})
        for name, side in self._sides.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a side input must be a string, not {name!r}")
            if not isinstance(side, AsSideInput):
                raise TypeError(f"the side input {name!r} must be AsDict(…) or the like: {side!r}")
        self._tags: Sequence[str] = ()
        self._main: str | None = None
        declared = process.declare_all()
        declared.close()
        self._inputs = len(declared.inputs)
        self._declared = [text for each in declared.descriptions for text in each.values()]

    def with_outputs(self, *tags: str, main: str | None = None) -> "DeclarativeKeyedProcess":
        """Return a transform with tagged outputs, as ``ParDo.with_outputs`` does.

        Args:
            tags: The tags that ``ctx.output`` may use.
            main: The tag by which the main output is accessed; None: it cannot be.

        Raises:
            TypeError: A tag is no string.
            ValueError: A tag is empty, given twice, or reserved.
        """
        given = tags if main is None else (*tags, main)
        for tag in given:
            if not isinstance(tag, str):
                raise TypeError(f"the tag of an output must be a string, not {tag!r}")
            if not tag or tag == _MAIN:
                raise ValueError(f"an output must not have the tag {tag!r}")
        if main in tags:
            raise ValueError(f"the main output must not have the tag {main!r} of another one")
        if len({*tags}) < len(tags):
            raise ValueError(f"two outputs have the same tag: {', '.join(map(repr, tags))}")
        more = copy.copy(self)
        more._tags, more._main = tags, main
        return more

    @override
    def expand(self, pcolls: Any) -> Any:
        given = pcolls if isinstance(pcolls, tuple | list) else (pcolls,)
        if not all(isinstance(pcoll, PCollection) for pcoll in given):
            raise TypeError(f"{self.label} needs a collection or a pair of these, not {pcolls!r}")
        label = given[0].pipeline.transforms_stack[-1].full_label
        if len(given) != self._inputs:
            raise InvalidPipelineError(
                f"{type(self._process).__name__} processes "
                + ("one collection" if self._inputs == 1 else "a pair of collections")
                + f", not {len(given)}",
                label,
            )
        for pcoll in given:
            _check_pairs(pcoll, label)
        pcoll, value_coders = _one_collection(given, label)
        hints = self.get_type_hints()
        step = _Step(
            self._process,
            value_coders,
            self._sides,
            self._declared,
            hints.simple_output_type(label) or typehints.Any,
            {tag: hints.tagged_output_types().get(tag, typehints.Any) for tag in self._tags},
        )
        outputs = pcoll | step
        if not self._tags:
            return outputs
        result = DoOutputsTuple(pcoll.pipeline, step, self._tags, self._main)
        result._pcolls = {None: outputs.pop(_MAIN), **outputs}
        return result


class _KeyedParDo(beam.ParDo):  # type: ignore[misc]
    """A ParDo whose timers have the coders of its main input's keys and windows.

    Beam 2.77 takes those of any input, a side input among them, as the hashes of their names are.
    """

    @override
    def to_runner_api_parameter(self, context: Any, **extra: Any) -> tuple[str, Any]:
        if named := extra.get("named_inputs"):
            main = {
                name: pcoll
                for name, pcoll in named.items()
                if not name.startswith(SIDE_INPUT_PREFIX)
            }
            extra = {**extra, "named_inputs": main}
        urn, payload = super().to_runner_api_parameter(context, **extra)
        return str(urn), payload


class _Step(_KeyedParDo):
    """The composite that the runner executes.

    Args:
        process: The process.
        value_coders: See ``KeyedProcessDoFn``.
        sides: The side inputs, by name.
        declared: The descriptions of all declared callbacks and variables.
        type_: The type of the main output.
        tagged_types: The types of the tagged outputs.
    """

    def __init__(
        self,
        process: KeyedProcess,
        value_coders: Sequence[Any],
        sides: Mapping[str, AsSideInput],
        declared: Sequence[str],
        type_: Any,
        tagged_types: Mapping[str, Any],
    ) -> None:
        self._given_sides = {SIDE_INPUT + name: side for name, side in sides.items()}
        fn = KeyedProcessDoFn(process, value_coders, tags=[*tagged_types])
        super().__init__(fn, **self._given_sides)
        self._process, self._value_coders, self._declared = process, value_coders, declared
        self._type, self._tagged_types = type_, tagged_types
        self.payload: Any = None  # set if the step was read from a proto

    @override
    def default_label(self) -> str:
        return "Keys"

    @override
    def annotations(self) -> dict[str, Any]:
        """Add the descriptions of what is declared, which the proto then has."""
        own = {DECLARED: json.dumps(self._declared).encode()} if self._declared else {}
        return {**super().annotations(), **own}

    @override
    def to_runner_api_parameter(self, context: Any, **extra: Any) -> tuple[str, Any]:
        return DECLARATIVE_KEYED_PROCESS, self.payload_for(context, **extra)

    def payload_for(self, context: Any, **extra: Any) -> Any:
        """Return the payload: that of a ParDo."""
        if self.payload is not None:
            return self.payload
        payload = _KeyedParDo.to_runner_api_parameter(self, context, **extra)[1]
        if self.fn.expires:
            payload.on_window_expiration_timer_family_spec = TimerSpec.prefix + EXPIRATION_TIMER
        return payload

    @override
    def expand(self, pcoll: PCollection) -> Any:
        fn = KeyedProcessDoFn(
            self._process,
            self._value_coders,
            lateness_us=pcoll.windowing.allowed_lateness.micros,
            tags=[*self._tagged_types],
        )
        run = _KeyedParDo(fn, **self._given_sides).with_output_types(self._type)
        if not self._tagged_types:
            return pcoll | "Process" >> run
        run = run.with_output_types(self._type, **self._tagged_types)
        outputs = pcoll | "Process" >> run.with_outputs(*self._tagged_types, main=_MAIN)
        return {tag: outputs[tag] for tag in (_MAIN, *self._tagged_types)}

    @override
    def infer_output_type(self, input_type: Any) -> Any:
        return self._type


def _from_payload(proto: Any, payload: Any, context: Any) -> _Step:
    """Construct such a step from a pipeline's proto, as some runners do."""
    read = beam.ParDo.from_runner_api_parameter(proto, payload, context)
    process, value_coders, _, tags = read.fn.arguments
    tagged_types = dict.fromkeys(tags, typehints.Any)
    step = _Step(process, value_coders, {}, (), typehints.Any, tagged_types)
    step.payload = payload
    return step


beam.PTransform.register_urn(
    DECLARATIVE_KEYED_PROCESS, beam_runner_api_pb2.ParDoPayload, _from_payload
)


def _one_collection(pcolls: Sequence[PCollection], label: str) -> tuple[PCollection, Sequence[Any]]:
    """Return the input of the step, and the coders of its tagged values if there are two inputs."""
    if len(pcolls) == 1:
        return pcolls[0], ()
    first, second = pcolls
    if first.windowing != second.windowing:
        raise InvalidPipelineError(
            f"its inputs have different windows or triggers: {first.windowing} and "
            f"{second.windowing}",
            label,
        )
    keys, coders, parts = [], [], []
    for number, pcoll in enumerate(pcolls):
        key, value = _types_of_pair(pcoll.element_type)
        keys.append(key)
        coders.append(registry.get_coder(value))
        parts.append(
            pcoll
            | f"Tag {number + 1}"
            >> beam.Map(tagged, number, coders[-1]).with_output_types(typehints.Tuple[key, bytes])
        )
    if keys[0] != keys[1]:
        raise InvalidPipelineError(
            f"its inputs have keys of different types: {keys[0]} and {keys[1]}; declare them by "
            "with_output_types of the steps that make them",
            label,
        )
    return parts | beam.Flatten(), coders


def _check_pairs(pcoll: PCollection, label: str) -> None:
    pairs = typehints.Tuple[typehints.Any, typehints.Any]
    if not is_consistent_with(pcoll.element_type or typehints.Any, pairs):
        raise InvalidPipelineError(
            f"it needs pairs of key and value, not {pcoll.element_type}", label
        )


def _types_of_pair(type_: Any) -> tuple[Any, Any]:
    if isinstance(type_, TupleConstraint) and len(type_.tuple_types) == 2:
        key, value = type_.tuple_types
        return key, value
    return typehints.Any, typehints.Any
