"""Options that user code reads while a pipeline runs."""

import sys
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import HadoopFileSystemOptions, PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from tests.harvest import harvest


class Greeted(PipelineOptions):  # type: ignore[misc]
    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_value_provider_argument("--greeting", default="hello")
        parser.add_value_provider_argument("--name", default="nobody")


def test_value_providers(spark_session: Any) -> None:
    """Options that steps read only when they run."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        options = p.options.view_as(Greeted)
        greeting, name = options.greeting, options.name
        words = beam.Map(lambda _: f"{greeting.get()} {name.get()}")
        parallel = RuntimeValueProvider("parallelism", int, 0)
        return {
            "words": p | beam.Create([None]) | words,
            "numbers": p | "again" >> beam.Create([1]) | beam.Map(lambda n: n + parallel.get()),
        }

    found = harvest(spark_session, build, "--name=you", "--parallelism=3")
    assert found["words"] == ["hello you"]
    assert found["numbers"] == [4]


class Addressed(LocalFileSystem):  # type: ignore[misc]
    """Is made with an address of the pipeline's options, as Beam's of Hadoop and S3 are."""

    def __init__(self, pipeline_options: PipelineOptions) -> None:
        super().__init__(pipeline_options)
        self.host = pipeline_options.view_as(HadoopFileSystemOptions).hdfs_host

    @classmethod
    def scheme(cls) -> str:
        return "addressed"


def host_of(path: str) -> str:
    found = FileSystems.get_filesystem(path)
    assert isinstance(found, Addressed)
    return str(found.host)


def test_file_systems_have_the_options_of_each_pipeline(spark_session: Any) -> None:
    """One pipeline after another, in the same process or the same workers."""
    for host in ("one", "other"):
        found = harvest(
            spark_session,
            lambda p: {"hosts": p | beam.Create(["addressed://file"]) | beam.Map(host_of)},
            f"--hdfs_host={host}",
        )
        assert found["hosts"] == [host]


def test_pickle_libraries(spark_session: Any) -> None:
    """One pipeline after another; dill has names of its own for what is in the main module."""
    increment = eval("lambda n: n + 1", vars(sys.modules["__main__"]))
    for library in ("dill", "cloudpickle", "default", "dill"):
        found = harvest(
            spark_session,
            lambda p: {"all": p | beam.Create([1, 2]) | beam.Map(increment)},
            f"--pickle_library={library}",
        )
        assert found["all"] == [2, 3]
