"""The options of state stores."""

import argparse
import importlib.util
from urllib.parse import parse_qs, urlsplit

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.options.values import MAX_BYTES, MAX_SECONDS, positive

DEFAULT_STORE_CACHE_MB = 64
"""The megabytes of keys that a worker keeps in memory between its tasks."""

_MAX_RECORDS = 1_000_000
_SCHEMES = ("redis", "rediss", "unix")


def state_store(url: str | None, password_file: str | None) -> StateStoreAddress | None:
    """Return the address of the state store; None: there is none.

    Args:
        url: The value of ``--state_store``.
        password_file: The value of ``--state_store_password_file``.

    Raises:
        OptionsError: The URL is wrong or has a password, or the client is not installed.
    """
    if not url:
        if password_file:
            raise OptionsError("state_store_password_file", "needs a --state_store")
        return None
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not (parts.hostname or parts.scheme == "unix"):
        raise OptionsError(
            "state_store",
            f"{parts.scheme or 'it'} is no URL of a Redis or Valkey server: redis://HOST:PORT/DB, "
            "rediss:// for TLS, or unix://PATH",
        )
    if parts.password is not None:
        raise OptionsError(
            "state_store",
            "has a password, which Spark would show to its users; write it to a file, and name "
            "that by --state_store_password_file",
        )
    try:
        _ = parts.port
    except ValueError as error:
        raise OptionsError("state_store", f"has a wrong port: {error}") from error
    for name in parse_qs(parts.query, keep_blank_values=True):
        if name != "db" and not name.startswith("ssl_"):
            raise OptionsError(
                "state_store", f"has {name}, but only db and those that begin with ssl_ can be set"
            )
    if importlib.util.find_spec("redis") is None:
        raise OptionsError(
            "state_store",
            "needs the client of Redis: pip install 'beam-spark-runner[redis]', on all machines",
        )
    return StateStoreAddress(url, password_file or None)


def cache_bytes(values: argparse.Namespace) -> int:
    """Return how many bytes of keys a worker keeps in memory between its tasks.

    Raises:
        OptionsError: The value is wrong, or there is no state store.
    """
    given = getattr(values, "state_store_cache_mb", None)
    if given is None:
        return DEFAULT_STORE_CACHE_MB << 20
    most = MAX_BYTES >> 20
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise OptionsError(
            "state_store_cache_mb",
            f"must be a whole number of megabytes, 0 to {most}, not {given!r:.100}",
        )
    if not getattr(values, "state_store", None):
        raise OptionsError("state_store_cache_mb", "has no effect without a --state_store")
    return given << 20


def in_flight_limits(values: argparse.Namespace) -> FlightLimits:
    """Return how much a declarative step processes at the same time.

    Raises:
        OptionsError: A value is wrong, or there is no state store.
    """
    most = {
        "async_state_total_buffer_size": _MAX_RECORDS,
        "async_state_active_buffer_size": _MAX_RECORDS,
        "async_state_active_buffer_timeout_millis": MAX_SECONDS * 1_000,
    }
    given = {name: positive(name, getattr(values, name, None), most[name]) for name in most}
    for name, value in given.items():
        if value is not None and not getattr(values, "state_store", None):
            raise OptionsError(name, "has no effect without a --state_store")
    records, batch, wait_ms = given.values()
    return FLIGHT_LIMITS._replace(
        records=records or FLIGHT_LIMITS.records,
        batch=batch or FLIGHT_LIMITS.batch,
        wait_us=FLIGHT_LIMITS.wait_us if wait_ms is None else wait_ms * 1_000,
    )


def leaves_requests(values: argparse.Namespace) -> bool:
    """Return whether declarative steps may leave requests for the next epoch.

    Raises:
        OptionsError: There is no state store.
    """
    leaves = bool(getattr(values, "unaligned_state_requests", False))
    if leaves and not getattr(values, "state_store", None):
        raise OptionsError("unaligned_state_requests", "has no effect without a --state_store")
    return leaves
