"""Finds out whether other hosts reach the same server by its address."""

import secrets

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.key_store import StateStoreError
from beam_spark_runner.state.remote.redis_client import client_of, reaching

_EXPIRES_S = 3600
_FIELD, _VALUE = "written", "1"


def write_probe(address: StateStoreAddress) -> str:
    """Write a name that no other server has, and return it. It expires.

    Raises:
        StateStoreError: The server does not work.
    """
    name = f"bsr:probe:{secrets.token_hex(8)}"
    with reaching(address.url):
        client = client_of(address)
        client.hset(name, _FIELD, _VALUE)
        client.expire(name, _EXPIRES_S)
    return name


def remove_probe(address: StateStoreAddress, name: str) -> None:
    """Remove the name.

    Raises:
        StateStoreError: The server does not work.
    """
    with reaching(address.url):
        client_of(address).unlink(name)


def problem_of_probe(address: StateStoreAddress, name: str) -> str:
    """Return why this host does not reach the server that has a name; empty: it does."""
    try:
        with reaching(address.url):
            found = client_of(address).hget(name, _FIELD)
    except (StateStoreError, OptionsError) as error:
        return str(error)
    return "" if found else "another server answers there"
