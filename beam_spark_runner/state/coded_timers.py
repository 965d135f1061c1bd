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
    return bytes(timer_proto(timer).SerializeToString(deterministic=True))


def timer_proto(timer: StoredTimer) -> store_pb2.StoredTimer:
    """Return a timer as it is stored."""
    family, tag, window, domain, fires_us, hold_us, pane = timer
    return store_pb2.StoredTimer(
        family=family,
        tag=tag,
        window=window,
        domain=_CODED_DOMAINS[domain],
        fires_us=fires_us,
        hold_us=hold_us,
        pane=pane,
    )


def timer_of(coded: bytes) -> StoredTimer:
    """Decode a timer."""
    return timer_of_proto(store_pb2.StoredTimer.FromString(coded))


def timer_of_proto(proto: store_pb2.StoredTimer) -> StoredTimer:
    """Return a timer that was stored."""
    return StoredTimer(
        proto.family,
        proto.tag,
        proto.window,
        _DOMAINS[proto.domain],
        proto.fires_us,
        proto.hold_us,
        proto.pane,
    )
