"""Cache tokens: they let an SDK cache state and side inputs from one bundle to the next."""

from collections.abc import Mapping

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.bundle import SideInputLookup


def side_input_tokens(
    side_inputs: Mapping[tuple[str, str], SideInputLookup],
) -> list[beam_fn_api_pb2.ProcessBundleRequest.CacheToken]:
    """Side inputs never change: their ids are valid cache tokens."""
    token = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return [
        token(
            token=lookup.id.encode(),
            side_input=token.SideInput(transform_id=transform, side_input_id=name),
        )
        for (transform, name), lookup in side_inputs.items()
    ]


def user_state_token(token: bytes) -> beam_fn_api_pb2.ProcessBundleRequest.CacheToken:
    """What the SDK has cached of the current keys stays valid for the next bundle."""
    kind = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return kind(token=token, user_state=kind.UserState())
