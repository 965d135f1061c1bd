"""Says what a program waits for while its session is opened."""

import contextlib
import sys
from typing import Any

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.chosen_master import DEFAULT_MASTER, chosen_master
from beam_spark_runner.spark.session.conf import SparkSettings
from beam_spark_runner.spark.session.launch import without_token

_CONNECT = "pyspark.sql.connect.session"


def session_to_open(config: SparkSettings, given_session: Any) -> str:
    """Return what ``open_session`` is about to do, for people.

    Example:
        starting Spark local[*]
        connecting to sc://host:15002
        opening a Spark session
    """
    master = config.spark_master_url
    if given_session is not None or pyspark_internals.has_context() or (_CONNECT in sys.modules):
        return "opening a Spark session"  # while another one exists
    if master is not None and master.startswith("sc://"):
        return f"connecting to {without_token(master)}"
    with contextlib.suppress(Exception):  # that of the start is reported
        master = master or chosen_master()
    return f"starting Spark {master or DEFAULT_MASTER}"
