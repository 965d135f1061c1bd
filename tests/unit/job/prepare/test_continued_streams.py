"""Which streams a job server continues by itself, and where their epochs are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Events
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.prepare.continued_streams import (
    for_server,
    has_servers_checkpoint,
    is_continued_stream,
)
from beam_spark_runner.options import RunnerConfig
from tests.unit.portable.pipelines import proto_of


def unbounded(p: beam.Pipeline) -> Any:
    return p | PeriodicImpulse()


def bounded(p: beam.Pipeline) -> Any:
    return p | beam.Create([1]) | beam.Map(str)


def played(p: beam.Pipeline) -> Any:
    return p | Events().add_elements([1])


NONE = RunnerConfig()
NAMED = replace(NONE, checkpoint_dir="/checkpoint")


@pytest.mark.parametrize(
    ("build", "config", "is_one"),
    [
        pytest.param(unbounded, NONE, True, id="an unbounded source"),
        pytest.param(bounded, NONE, False, id="batch"),
        pytest.param(bounded, replace(NONE, is_streaming=True), True, id="--streaming"),
        pytest.param(played, NONE, False, id="a TestStream is a test"),
        pytest.param(played, NAMED, True, id="a TestStream with a checkpoint"),
        pytest.param(unbounded, replace(NONE, drains=True), False, id="its source ends at once"),
        pytest.param(unbounded, replace(NAMED, drains=True), True, id="it is drained"),
    ],
)
def test_streams_continue_unless_they_end_or_are_tests(
    build: Callable[[beam.Pipeline], Any], config: RunnerConfig, *, is_one: bool
) -> None:
    assert is_continued_stream(proto_of(build), config) is is_one


def test_epochs_are_in_the_users_checkpoint_or_next_to_the_job() -> None:
    pipeline, secret = proto_of(unbounded), (("key", "secret"),)
    own = for_server(pipeline, replace(NAMED, store_settings=secret), "/jobs/0123")
    assert (own.checkpoint_dir, own.store_settings) == ("/checkpoint", secret)
    assert not has_servers_checkpoint(own)
    servers = for_server(pipeline, replace(NONE, store_settings=secret), "s3://bucket/jobs/0123")
    assert servers.checkpoint_dir == "s3://bucket/jobs/checkpoints/0123"
    assert servers.store_settings == ()  # those of the client's own stores
    assert has_servers_checkpoint(servers)
    assert for_server(proto_of(bounded), NONE, "/jobs/0123").checkpoint_dir is None


def test_a_savepoint_in_a_store_of_the_clients_needs_a_checkpoint_there() -> None:
    pipeline = proto_of(unbounded)
    config = replace(NONE, store_settings=(("key", "secret"),), savepoint_path="s3://other/saved")
    with pytest.raises(OptionsError, match="--checkpoint_dir: must be named, too"):
        for_server(pipeline, config, "/jobs/0123")
    same = for_server(pipeline, replace(config, store_settings=()), "/jobs/0123")
    assert has_servers_checkpoint(same)
    own = for_server(pipeline, replace(config, checkpoint_dir="s3://other/own"), "/jobs/0123")
    assert own.store_settings == config.store_settings
