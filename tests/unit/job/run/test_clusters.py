"""Which cluster a job gets."""

from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.run.clusters import cluster_of
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.versions import SparkVersion


def test_connect_to_spark_3_5_needs_shared_storage() -> None:
    version = SparkVersion.parse("3.5.7")
    session = mock.Mock(spec=SessionHandle, is_connect=True, version=version)
    unused: Any = None
    with pytest.raises(OptionsError, match=r"--temp_location: Spark 3\.5.* cannot store rows"):
        cluster_of(
            unused,
            session,
            mock.Mock(rows=None),
            unused,
            unused,
            unused,
            plays_test_stream=False,
        )
