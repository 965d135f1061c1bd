"""Timers as they are stored."""

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import StoredTimer

_CODED_DOMAINS = {domain: domain.value for domain in Domain}
_DOMAINS = {coded: domain for domain, coded in _CODED_DOMAINS.items()}


def coded_place(transform: str, key: bytes) -> bytes:
    """Encode a transform and key."""
    return bytes(store_pb2.TimerOwner(key=key, transform=transform).SerializeToString())


def coded_timer(timer: StoredTimer) -> bytes:
    """Encode a timer."""
    family, tag, window, domain, fires_us, hold_us, pane = timer
    proto = store_pb2.StoredTimer(
        family=family,
        tag=tag,
        window=window,
        domain=_CODED_DOMAINS[domain],
        fires_us=fires_us,
        hold_us=hold_us,
        pane=pane,
    )
    return bytes(proto.SerializeToString(deterministic=True))


def timer_of(coded: bytes) -> StoredTimer:
    """Decode a timer."""
    proto = store_pb2.StoredTimer.FromString(coded)
    return StoredTimer(
        proto.family,
        proto.tag,
        proto.window,
        _DOMAINS[proto.domain],
        proto.fires_us,
        proto.hold_us,
        proto.pane,
    )
