"""The fields of a row coder as a text, which is equal for equal schemas."""

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
