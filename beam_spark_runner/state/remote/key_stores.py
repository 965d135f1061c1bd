"""Opens state stores by their addresses."""

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.key_store import KeyStore


def key_store(address: StateStoreAddress, namespace: str, number: int) -> KeyStore:
    """Return the groups of a stage in a state store; the server is asked what it is.

    Args:
        address: The address of the store.
        namespace: The namespace of the checkpoint.
        number: The store number of the stage.

    Raises:
        StateStoreError: The server does not answer, or the file with the password cannot be read.
    """
    from beam_spark_runner.state.remote.redis_client import client_of  # an optional library
    from beam_spark_runner.state.remote.redis_store import RedisStore

    return RedisStore(client_of(address), address.url, namespace, number)
