"""Executors that do not reach the state store of the driver."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.spark.session.store_preflight import check_executors_reach
from beam_spark_runner.state.remote import redis_probe
from tests.state_store.servers import redis_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _session(spark: "SparkSession", name: str, *, is_local: bool = False) -> Any:
    """Return what the check needs of a session, as if its tasks ran on other hosts."""
    session = mock.Mock(is_local=is_local, spark=spark)
    session.application_id.return_value = name
    session.slots.return_value = 2
    return session


def test_executors_that_do_not_reach_the_server_are_named(
    spark_session: "SparkSession", tmp_path: Path
) -> None:
    with redis_server(tmp_path) as server:
        address = StateStoreAddress(server.url)
        check_executors_reach(_session(spark_session, "same"), address)
        assert server.client().keys("*") == []
        with (
            mock.patch.object(redis_probe, "write_probe", return_value="bsr:probe:elsewhere"),
            pytest.raises(OptionsError, match=r"on .*: another server answers there") as raised,
        ):
            check_executors_reach(_session(spark_session, "other"), address)
        assert server.url in str(raised.value)
        with mock.patch.object(redis_probe, "write_probe") as write:
            check_executors_reach(_session(spark_session, "same"), address)  # it is checked once
            check_executors_reach(_session(spark_session, "local", is_local=True), address)
        write.assert_not_called()
        unreadable = StateStoreAddress(server.url, str(tmp_path / "on the driver alone"))
        with (
            mock.patch.object(redis_probe, "write_probe", return_value="bsr:probe:x"),
            mock.patch.object(redis_probe, "remove_probe"),
            pytest.raises(OptionsError, match=r"on .*: .*its password cannot be read"),
        ):
            check_executors_reach(_session(spark_session, "without"), unreadable)
