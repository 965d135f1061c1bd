"""The fields of a row coder: their number, and a text that is equal for equal schemas."""

from collections.abc import Iterator

from apache_beam.portability.api import schema_pb2
from google.protobuf.message import DecodeError


def row_fields(payload: bytes) -> str:
    """Return the schema of ``beam:coder:row:v1`` as text, without its id, which is random.

    Example:
        "x:INT64,names:array<STRING>?"

    Returns:
        The text; empty if the payload is no schema.

    Source: proto ``Schema``.
    """
    try:
        schema = schema_pb2.Schema.FromString(payload)
    except DecodeError:
        return ""
    return _fields(schema)


def fields_built_by_beam(payload: bytes) -> int:
    """Return how many fields Beam's Python SDK makes types for, to build a row coder.

    It makes those of a row inside a row three times, and so 3^n times those that are n rows deep.

    Args:
        payload: The payload of the coder.

    Raises:
        DecodeError: The payload is no schema.

    Source: ``apache_beam.typehints.schemas.SchemaTranslation.named_tuple_from_schema``.
    """
    return _fields_built(schema_pb2.Schema.FromString(payload))


def _fields_built(schema: schema_pb2.Schema) -> int:
    return 1 + sum(1 + 3 * sum(map(_fields_built, _rows_in(field.type))) for field in schema.fields)


def _rows_in(type_: schema_pb2.FieldType) -> Iterator[schema_pb2.Schema]:
    """Yield the outermost rows in a type; protobuf limits how deep types nest."""
    match type_.WhichOneof("type_info"):
        case "array_type":
            yield from _rows_in(type_.array_type.element_type)
        case "iterable_type":
            yield from _rows_in(type_.iterable_type.element_type)
        case "map_type":
            yield from _rows_in(type_.map_type.key_type)
            yield from _rows_in(type_.map_type.value_type)
        case "row_type":
            yield type_.row_type.schema
        case "logical_type":
            yield from _rows_in(type_.logical_type.representation)


def _fields(schema: schema_pb2.Schema) -> str:
    return ",".join(
        f"{field.name}:{_type(field.type)}"
        # The order in which they are encoded, if it is not the one in which they are declared.
        + (f"@{field.encoding_position}" if schema.encoding_positions_set else "")
        for field in schema.fields
    )


def _type(type_: schema_pb2.FieldType) -> str:
    kind = type_.WhichOneof("type_info")
    match kind:
        case "atomic_type":
            text = str(schema_pb2.AtomicType.Name(type_.atomic_type))
        case "array_type":
            text = f"array<{_type(type_.array_type.element_type)}>"
        case "iterable_type":
            text = f"iterable<{_type(type_.iterable_type.element_type)}>"
        case "map_type":
            text = f"map<{_type(type_.map_type.key_type)},{_type(type_.map_type.value_type)}>"
        case "row_type":
            text = f"row<{_fields(type_.row_type.schema)}>"
        case "logical_type":
            text = f"{type_.logical_type.urn}<{_type(type_.logical_type.representation)}>"
        case _:
            text = str(kind)
    return f"{text}?" if type_.nullable else text
