"""The options that name a state store."""

import importlib.util
from urllib.parse import parse_qs, urlsplit

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress

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
