"""Cache tokens, with which an SDK caches state and side inputs from one bundle to the next."""

from collections.abc import Mapping

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.bundle import SideInputLookup


def side_input_tokens(
    side_inputs: Mapping[tuple[str, str], SideInputLookup],
) -> list[beam_fn_api_pb2.ProcessBundleRequest.CacheToken]:
    """Return the cache tokens of side inputs: their ids, since side inputs never change."""
    token = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return [
        token(
            token=lookup.id.encode(),
            side_input=token.SideInput(transform_id=transform, side_input_id=name),
        )
        for (transform, name), lookup in side_inputs.items()
    ]


def user_state_token(token: bytes) -> beam_fn_api_pb2.ProcessBundleRequest.CacheToken:
    """Return a cache token with which cached user state stays valid for the next bundle."""
    kind = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return kind(token=token, user_state=kind.UserState())
