"""Checks of arguments when a pipeline is built, and inference of types."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.pvalue import AsSideInput, PCollection
from apache_beam.transforms.userstate import get_dofn_specs
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.trivial_inference import infer_return_type
from apache_beam.typehints.typehints import (
    TupleConstraint,
    TypeConstraint,
    UnionConstraint,
    is_consistent_with,
)

from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    OptionsError,
    UnsupportedFeatureError,
)
from beam_spark_runner.core.sizes import parse_bytes
from beam_spark_runner.transforms.full_window.keys import Order
from beam_spark_runner.transforms.full_window.sorting import DEFAULT_MEMORY_BYTES

_FEATURE = "a full-window partition of an unbounded collection or in a streaming pipeline"
# These types define ``__lt__`` although they have no total order.
_UNSORTABLE = (set, frozenset, dict, complex)
_NO_ORDER = vars(object)["__lt__"]  # inherited by all classes that do not define it


def check_function(fn: Any, method: str) -> None:
    """Check that an argument is a function.

    Raises:
        TypeError: ``fn`` is a class, or not callable.
    """
    if isinstance(fn, type) or not callable(fn):
        raise TypeError(f"{method} needs a function, not {fn!r}")


def check_map_partition(fn: Any) -> None:
    """Check that a function or DoFn can run over a partition.

    Raises:
        TypeError: ``fn`` is neither a function nor a DoFn instance, or has state, timers, or
            parameters such as ``DoFn.TimestampParam``, which belong to single elements.
    """
    if isinstance(fn, type) and issubclass(fn, beam.DoFn):
        raise TypeError(f"map_partition needs an instance: {fn.__name__}(), not {fn.__name__}")
    if not isinstance(fn, beam.DoFn):
        check_function(fn, "map_partition")
        _check_parameters(fn, fn)
        return
    states, timers = get_dofn_specs(fn)
    if states or timers:
        raise TypeError(f"{name_of(fn)} has state or timers, which belong to elements with keys")
    _check_parameters(fn.process, fn)
    for method in (fn.start_bundle, fn.finish_bundle):
        _check_parameters(method, fn)


def _check_parameters(function: Callable[..., Any], fn: Any) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C
        return
    for parameter in parameters:
        if isinstance(parameter.default, type(beam.DoFn.ElementParam)):
            raise TypeError(
                f"{name_of(fn)} asks for {parameter.default}, which belongs to an element; a "
                "function of map_partition gets the records, and side inputs"
            )


def check_combine_fn(combine_fn: Any) -> None:
    """Check that an argument is an instance of CombineFn.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(combine_fn, beam.CombineFn):
        raise TypeError(
            f"aggregate needs an instance of CombineFn, not {combine_fn!r}; reduce takes a function"
        )


def check_field(field: Any) -> None:
    """Check the ``field`` argument of ``sort_partition``.

    Raises:
        TypeError: It is neither an index, nor a name, nor a function.
        ValueError: It is a negative index, or not a valid name.
    """
    if isinstance(field, str):
        if not all(part.isidentifier() for part in field.split(".")):
            raise ValueError(f"sort_partition: {field!r} is not the name of an attribute")
        return
    if isinstance(field, int) and not isinstance(field, bool):
        if field < 0:
            raise ValueError(f"sort_partition: fields are counted from 0, {field} is not one")
        return
    if isinstance(field, type) or not callable(field):
        raise TypeError(
            "sort_partition needs the place of a field, the name of an attribute, or a function "
            f"that returns the key of a record, not {field!r}"
        )


def check_order(order: Any) -> None:
    """Check that an argument is an ``Order``.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(order, Order):
        raise TypeError(f"sort_partition needs Order.ASCENDING or Order.DESCENDING, not {order!r}")


def check_input(pcoll: PCollection, label: str, *, is_keyed: bool) -> None:
    """Check that the input of a transform is bounded, and has keys if these are needed.

    Args:
        pcoll: The input.
        label: The full name of the transform, for errors.
        is_keyed: Whether the elements must be pairs of key and value.

    Raises:
        UnsupportedFeatureError: The input is unbounded, or the pipeline streams.
        InvalidPipelineError: The elements are known not to be pairs.
    """
    streams = pcoll.pipeline.options.view_as(StandardOptions).streaming
    if streams or not pcoll.is_bounded:
        raise UnsupportedFeatureError(_FEATURE, label)
    if is_keyed and not is_consistent_with(
        pcoll.element_type or typehints.Any, typehints.Tuple[typehints.Any, typehints.Any]
    ):
        raise InvalidPipelineError(
            f"FullWindowPartition.by_key() needs pairs of key and value, not {pcoll.element_type}",
            label,
        )


def check_side_inputs(arguments: Iterable[Any], label: str) -> None:
    """Check that all side inputs are in the global window, as the partition is.

    Args:
        arguments: The arguments of user code, side inputs among them.
        label: The full name of the transform, for errors.

    Raises:
        InvalidPipelineError: A side input has another window function.
    """
    for argument in arguments:
        if isinstance(argument, AsSideInput) and not isinstance(
            argument.pvalue.windowing.windowfn, GlobalWindows
        ):
            raise InvalidPipelineError(
                f"its side input {argument.pvalue.producer.full_label} is in "
                f"{type(argument.pvalue.windowing.windowfn).__name__}, but the partition is in the "
                "global window; give the side input WindowInto(GlobalWindows())",
                label,
            )


def of_empty(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    """Return the arguments of user code for an empty partition; None: there are side inputs."""
    has_side_inputs = any(
        isinstance(argument, AsSideInput) for argument in (*args, *kwargs.values())
    )
    return None if has_side_inputs else (args, kwargs)


def types_of_pair(type_: Any) -> tuple[Any, Any]:
    """Return the types of key and value of a type of pairs; ``Any`` if they are not known."""
    if isinstance(type_, TupleConstraint) and len(type_.tuple_types) == 2:
        key, value = type_.tuple_types
        return key, value
    return typehints.Any, typehints.Any


def check_sortable(field: Any, record: Any, label: str) -> None:
    """Check the field to sort by against the type of the records, as far as it is known.

    Args:
        field: An index, a name, or a function.
        record: The type of the records in Beam.
        label: The full name of the transform, for errors.

    Raises:
        InvalidPipelineError: Records do not have the field, or its type has no order.
    """
    if callable(field):
        key = infer_return_type(field, [record])
    elif isinstance(field, int):
        key = _type_at(field, record, label)
    else:
        key = record
        for name in field.split("."):
            key = _type_of_attribute(name, key, label)
    problem = _problem_of(key)
    if problem is not None:
        raise InvalidPipelineError(f"records cannot be sorted by {key}: {problem}", label)


def _type_at(place: int, record: Any, label: str) -> Any:
    if isinstance(record, TupleConstraint):
        if place >= len(record.tuple_types):
            raise InvalidPipelineError(f"{record} has no field {place} to sort by", label)
        return record.tuple_types[place]
    types = _types_of_fields(record)
    if types is not None and issubclass(record, tuple):
        if place >= len(types):
            raise InvalidPipelineError(f"{record.__name__} has no field {place} to sort by", label)
        return [*types.values()][place]
    if isinstance(record, type) and not hasattr(record, "__getitem__") and record is not object:
        raise InvalidPipelineError(f"{record.__name__} has no fields with places to sort by", label)
    return typehints.Any


def _type_of_attribute(name: str, record: Any, label: str) -> Any:
    if isinstance(record, RowTypeConstraint):
        types: Mapping[str, Any] | None = dict(record._fields)
    else:
        types = _types_of_fields(record)
    if types is None:
        is_known = isinstance(record, TupleConstraint) or record in (int, float, bool)
        if not is_known and not (record in (str, bytes) and not hasattr(record, name)):
            return typehints.Any
    elif name in types:
        return types[name]
    elif isinstance(record, type) and hasattr(record, name):  # a property
        return typehints.Any
    raise InvalidPipelineError(f"{record} has no attribute {name!r} to sort by", label)


def _types_of_fields(record: Any) -> Mapping[str, Any] | None:
    """Return the types of the fields of a named tuple or dataclass; None: ``record`` is neither."""
    if not isinstance(record, type):
        return None
    names = getattr(record, "_fields", None) or getattr(record, "__dataclass_fields__", None)
    if not names:
        return None
    annotations = getattr(record, "__annotations__", {})
    return {
        name: typehints.native_type_compatibility.convert_to_beam_type(
            annotations.get(name, typehints.Any)
        )
        for name in names
    }


def _problem_of(key: Any) -> str | None:
    """Return why values of a type have no order; None: they have one, or it is not known."""
    if isinstance(key, UnionConstraint):
        return None  # nullable columns may have no nulls, so that their values have an order
    if isinstance(key, TupleConstraint):
        return next(filter(None, map(_problem_of, key.tuple_types)), None)
    if isinstance(key, TypeConstraint):
        name = type(key).__name__
        if name in ("SetTypeConstraint", "FrozenSetTypeConstraint", "DictConstraint"):
            return "such keys have no order"
        return None
    if not isinstance(key, type) or key is object:
        return None
    if getattr(key, "__lt__", None) is _NO_ORDER or issubclass(key, _UNSORTABLE):
        return "such keys have no order"
    return None


def result_type_of(fn: Any) -> Any:
    """Return the type of results that a function of ``map_partition`` declares; else ``Any``."""
    hints = beam.typehints.decorators.IOTypeHints.from_callable(
        fn.process if isinstance(fn, beam.DoFn) else fn
    )
    if hints is None or not hints.has_simple_output_type():
        return typehints.Any
    try:
        type_ = hints.strip_iterable().simple_output_type("map_partition")
    except ValueError:  # not declared as an iterable
        return typehints.Any
    return typehints.Any if type_ is None else type_


def output_type_of(combine_fn: beam.CombineFn) -> Any:
    """Return the output type that a CombineFn declares; else ``Any``."""
    hints = combine_fn.get_type_hints()
    if hints.has_simple_output_type():
        return hints.simple_output_type("aggregate")
    return typehints.Any


def reduced_type_of(fn: Any, record: Any) -> Any:
    """Return the output type of ``reduce``: that of records if ``fn`` returns it, else ``Any``."""
    return record if infer_return_type(fn, [record, record]) == record else typehints.Any


def sort_memory_bytes(options: PipelineOptions) -> int:
    """Return ``--sort_partition_memory``, or its default, in bytes.

    Raises:
        OptionsError: The option is not a size.
    """
    value = options.get_all_options().get("sort_partition_memory")
    try:
        return DEFAULT_MEMORY_BYTES if value is None else parse_bytes(value)
    except ValueError as error:
        raise OptionsError("sort_partition_memory", str(error)) from error


def name_of(fn: Any) -> str:
    """Return the name of a function, object or field for a label."""
    if isinstance(fn, int | str):
        return str(fn)
    name: str = getattr(fn, "__name__", None) or type(fn).__name__
    return name
