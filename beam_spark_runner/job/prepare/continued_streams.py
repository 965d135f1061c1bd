"""Streams that a job server continues by itself, as it does batch jobs with recovery."""

from dataclasses import replace

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.storage.urls import is_url


def is_continued_stream(pipeline: beam_runner_api_pb2.Pipeline, config: RunnerConfig) -> bool:
    """Whether a job server with ``--jobs_dir`` continues a pipeline as a stream.

    Those with a TestStream are tests: they are continued only if their author names a
    ``--checkpoint_dir``.

    Args:
        pipeline: The proto that a client submits.
        config: The client's options.
    """
    has_folder = config.checkpoint_dir is not None
    if config.drains and not (has_folder or config.savepoint_path):
        return False  # its sources end at once, so that it runs in batch
    parts = pipeline.components
    if any(each.spec.urn == urns.TEST_STREAM for each in parts.transforms.values()):
        return has_folder
    unbounded = beam_runner_api_pb2.IsBounded.UNBOUNDED
    return config.is_streaming or any(
        each.is_bounded == unbounded for each in parts.pcollections.values()
    )


def for_server(
    pipeline: beam_runner_api_pb2.Pipeline, config: RunnerConfig, folder: str
) -> RunnerConfig:
    """Return the options of a job that is stored in ``--jobs_dir``.

    Args:
        pipeline: The proto that the client has submitted.
        config: The client's options.
        folder: The path or URL of the job's folder there.

    Raises:
        OptionsError: The checkpoint would be in a store that is reached in another way than that of
            the savepoint.
    """
    config = replace(config, server_folder=folder)
    if config.checkpoint_dir is not None or not is_continued_stream(pipeline, config):
        return config
    if config.store_settings and is_url(config.savepoint_path or ""):
        raise OptionsError(
            "checkpoint_dir",
            "must be named, too, if options say how the store of --savepoint_path is reached: the "
            "job server reaches its own --jobs_dir in another way",
        )
    # The client's settings of stores are those of its own folders.
    return replace(config, checkpoint_dir=default_checkpoint(folder), store_settings=())


def default_checkpoint(folder: str) -> str:
    """Return where a stream has its checkpoint whose client names no ``--checkpoint_dir``.

    It is not in the folder of the job, which is removed when the job has ended.

    Args:
        folder: The path or URL of the job's folder in ``--jobs_dir``.
    """
    root, _, job_id = folder.rpartition("/")
    return f"{root}/checkpoints/{job_id}"


def has_servers_checkpoint(config: RunnerConfig) -> bool:
    """Whether a job server has chosen the ``--checkpoint_dir`` of a stream."""
    folder = config.server_folder
    return folder is not None and config.checkpoint_dir == default_checkpoint(folder)
