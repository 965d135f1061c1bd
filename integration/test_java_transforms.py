"""Pipelines in Python with transforms in Java: of a class path, or of a jar as Beam starts it."""

import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io import kafka
from apache_beam.io.external.generate_sequence import GenerateSequence
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.external import (
    ExternalTransform,
    JavaExternalTransform,
    JavaJarExpansionService,
    NamedTupleBasedPayloadBuilder,
    SchemaAwareExternalTransform,
)
from apache_beam.transforms.sql import SqlTransform

from beam_spark_runner import SparkPortableRunner
from integration.java_transforms.service import (
    JARS,
    build_service,
    java_expansion_service,
    missing_tools,
)
from integration.job_server import job_server
from integration.kafka_broker import Broker, start_broker
from integration.kafka_pipelines import wait_while_running
from integration.postgresql import postgresql
from tests.spark.endless import nothing_goes_on, started  # noqa: F401  (a fixture)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing_tools()), reason=f"missing: {', '.join(missing_tools())}"),
    pytest.mark.usefixtures("nothing_goes_on"),
]
IN_PROCESSES = "--java_class_path=staged"
JDBC = "beam:schematransform:org.apache.beam:jdbc"


class Purchase(NamedTuple):
    """A row."""

    item: str
    price: int


beam.coders.registry.register_coder(Purchase, beam.coders.RowCoder)
PURCHASES = [Purchase("tea", 3), Purchase("tea", 4), Purchase("cup", 5)]


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of the service, without the others."""
    return build_service(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def service(jar: Path) -> Iterator[str]:
    """The address of a running service, which names containers."""
    with java_expansion_service(jar, "--javaClassLookupAllowlistFile=*") as address:
        yield address


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def run(spark: Any, build: Callable[[beam.Pipeline], Any], *flags: str) -> None:
    """Run a pipeline in the way of users: Beam's services end with the block."""
    with beam.Pipeline(
        runner=SparkPortableRunner(spark), options=PipelineOptions(list(flags))
    ) as p:
        build(p)


def doubled(service: Any) -> Callable[[beam.Pipeline], Any]:
    def build(p: beam.Pipeline) -> None:
        numbers = p | GenerateSequence(start=0, stop=100, expansion_service=service)
        doubles = numbers | beam.Map(lambda number: number * 2)
        assert_that(doubles, equal_to([number * 2 for number in range(100)]))

    return build


def test_a_service_of_a_class_path(local_session: Any, service: str) -> None:
    """Its environment is a container's; the staged jars have all that a process needs."""
    run(local_session, doubled(service), IN_PROCESSES)


def test_a_jar_that_beam_starts_needs_no_option(local_session: Any, jar: Path) -> None:
    """Beam's service then offers itself as a worker pool."""
    run(local_session, doubled(JavaJarExpansionService(str(jar), classpath=[f"{JARS}/*.jar"])))


def test_a_job_server(service: str) -> None:
    with (
        job_server() as url,
        beam.Pipeline(
            options=PipelineOptions(
                ["--runner=SparkPortableRunner", f"--job_endpoint={url}", IN_PROCESSES]
            )
        ) as p,
    ):
        doubled(service)(p)


def test_a_class_by_its_name(local_session: Any, service: str) -> None:
    def build(p: beam.Pipeline) -> None:
        words = p | beam.Create(["tea"]).with_output_types(str)
        made = JavaExternalTransform("org.apache.beam.sdk.transforms.Reshuffle", service)
        assert_that(
            words | beam.WithKeys("drink").with_output_types(tuple[str, str]) | made.of(),
            equal_to([("drink", "tea")]),
        )

    run(local_session, build, IN_PROCESSES)


def test_sql(local_session: Any, service: str) -> None:
    query = "SELECT item, SUM(price) AS total FROM PCOLLECTION GROUP BY item"

    def build(p: beam.Pipeline) -> None:
        rows = p | beam.Create(PURCHASES).with_output_types(Purchase)
        totals = rows | SqlTransform(query, expansion_service=service)
        pairs = totals | beam.Map(lambda row: (row.item, row.total))
        assert_that(pairs, equal_to([("tea", 7), ("cup", 5)]))

    run(local_session, build, IN_PROCESSES)


def test_a_database(local_session: Any, service: str) -> None:
    def jdbc(kind: str, **more: Any) -> Any:
        return SchemaAwareExternalTransform(
            f"{JDBC}_{kind}:v1",
            service,
            rearrange_based_on_discovery=True,
            jdbc_url=server.url,
            driver_class_name="org.postgresql.Driver",
            username="beam",
            password="",
            **more,
        )

    def write(p: beam.Pipeline) -> None:
        rows = p | beam.Create(PURCHASES).with_output_types(Purchase)
        rows | jdbc("write", location="bought")

    def read(p: beam.Pipeline) -> None:
        rows = p | jdbc("read", read_query="SELECT item, price FROM bought")
        pairs = rows | beam.Map(lambda row: (row.item, row.price))
        assert_that(pairs, equal_to([tuple(each) for each in PURCHASES]))

    with postgresql() as server:
        server.query("CREATE TABLE bought (item varchar, price bigint)")
        run(local_session, write, IN_PROCESSES)
        assert sorted(server.query("SELECT * FROM bought")) == ["cup|5", "tea|3", "tea|4"]
        run(local_session, read, IN_PROCESSES)


Bytes = typing.Tuple[bytes, bytes]  # noqa: UP006  (what Beam's coders of pairs need)


def written(broker: Broker, topic: str, service: str) -> Callable[[beam.Pipeline], Any]:
    def build(p: beam.Pipeline) -> None:
        pairs = [(b"%d" % number, b"%d" % (number * 2)) for number in range(100)]
        (
            p
            | beam.Create(pairs).with_output_types(Bytes)
            | kafka.WriteToKafka(strings(broker.config), topic, expansion_service=service)
        )

    return build


def strings(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in config.items()}


class ReadOf265(NamedTuple):
    """The settings that Java's SDK 2.65 knows: ``ReadFromKafka`` of newer versions sends more."""

    # Beam knows no other form of optional fields.
    consumer_config: typing.Mapping[str, str]
    topics: list[str]
    key_deserializer: str
    value_deserializer: str
    start_read_time: typing.Optional[int]  # noqa: UP045
    max_num_records: typing.Optional[int]  # noqa: UP045
    max_read_time: typing.Optional[int]  # noqa: UP045
    commit_offset_in_finalize: bool
    timestamp_policy: str
    consumer_polling_timeout: typing.Optional[int]  # noqa: UP045
    redistribute: typing.Optional[bool]  # noqa: UP045
    redistribute_num_keys: typing.Optional[np.int32]  # noqa: UP045
    allow_duplicates: typing.Optional[bool]  # noqa: UP045


def reading(broker: Broker, topic: str, service: str, most: int | None = None) -> Any:
    settings = ReadOf265(
        consumer_config={**strings(broker.config), "auto.offset.reset": "earliest"},
        topics=[topic],
        key_deserializer=kafka.ReadFromKafka.byte_array_deserializer,
        value_deserializer=kafka.ReadFromKafka.byte_array_deserializer,
        start_read_time=None,
        max_num_records=most,
        max_read_time=None,
        commit_offset_in_finalize=False,
        timestamp_policy=kafka.ReadFromKafka.processing_time_policy,
        consumer_polling_timeout=2,
        redistribute=False,
        redistribute_num_keys=np.int32(0),
        allow_duplicates=False,
    )
    urn = kafka.ReadFromKafka.URN_WITHOUT_METADATA
    return "Read" >> ExternalTransform(urn, NamedTupleBasedPayloadBuilder(settings), service)


def test_kafka_in_batch(local_session: Any, broker: Broker, service: str) -> None:
    topic = broker.create("batch", 2)
    run(local_session, written(broker, topic, service), IN_PROCESSES)
    assert sorted(int(each.value()) for each in broker.records(topic)) == list(range(0, 200, 2))

    def build(p: beam.Pipeline) -> None:
        pairs = p | reading(broker, topic, service, most=100)
        numbers = pairs | beam.Map(lambda pair: int(pair[1]))
        assert_that(numbers, equal_to(list(range(0, 200, 2))))

    run(local_session, build, IN_PROCESSES)


def test_kafka_in_a_stream(local_session: Any, broker: Broker, service: str) -> None:
    topic, copies = broker.create("stream", 2), broker.create("copies", 1)

    def build(p: beam.Pipeline) -> None:
        pairs = p | reading(broker, topic, service)
        copied = pairs | beam.Map(lambda pair: pair).with_output_types(Bytes)
        copied | kafka.WriteToKafka(strings(broker.config), copies, expansion_service=service)

    result = started(local_session, build, "--streaming", IN_PROCESSES)
    for already in (0, 50):
        numbers = range(already, already + 50)
        broker.produce(topic, ({"key": b"k", "value": b"%d" % number} for number in numbers))
        wait_while_running(
            result, functools.partial(has_records, broker, copies, already + 50), "copied records"
        )
        values = sorted(int(each.value()) for each in broker.records(copies))
        assert values == list(range(already + 50))


def has_records(broker: Broker, topic: str, count: int) -> bool:
    return len(broker.records(topic)) >= count
