"""Pipeline options in the forms that SDK harnesses receive."""

import json
from collections.abc import Mapping

from apache_beam.portability.api import beam_runner_api_pb2
from google.protobuf import json_format, struct_pb2

from beam_spark_runner.portable.environment_facts import python_version_of_beam


def options_json(options: Mapping[str, object]) -> str:
    """Encode pipeline options by the names that SDKs use, without values that JSON lacks."""
    values = {}
    for name, value in sorted(options.items()):
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        if value is not None:
            values[f"beam:option:{name}:v1"] = value
    return json.dumps(values, sort_keys=True)


def options_for(environment: beam_runner_api_pb2.Environment, coded: str) -> struct_pb2.Struct:
    """Return pipeline options for the SDK harnesses of an environment.

    A Struct has no integers: 7 becomes 7.0, which Python's SDK refuses, so that it gets text. Go's
    SDK refuses text.

    Args:
        environment: The environment.
        coded: The result of ``options_json``.
    """
    options = json.loads(coded)
    # An environment without capabilities may be of a Python program, too.
    if python_version_of_beam(environment) is not None or not environment.capabilities:
        options = {
            urn: str(value) if type(value) is int else value for urn, value in options.items()
        }
    message = struct_pb2.Struct()
    json_format.ParseDict(options, message)
    return message
