"""The contender of this runner: ``python -m benchmarks.kafka.ours`` reads tasks from stdin."""

import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, AfterWatermark
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import ReadFromKafka, WriteToKafka
from beam_spark_runner.transforms.kafka import CreateTime, ExactlyOnce
from benchmarks.kafka.child import serve

_SHARDS = 2


def _line(
    pair: tuple[bytes | None, int], window: Any = beam.DoFn.WindowParam
) -> tuple[bytes | None, bytes]:
    return pair[0], b"%d %d" % (int(window.start), pair[1])


def _window(task: dict[str, Any]) -> beam.WindowInto:
    size_s = task["window_s"]
    if not task["updates"]:
        return beam.WindowInto(FixedWindows(size_s))
    return beam.WindowInto(
        FixedWindows(size_s),
        trigger=AfterWatermark(early=AfterProcessingTime(0)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    )


def start(session: Any, task: dict[str, Any]) -> Callable[[], None]:
    """Start the pipeline."""
    config = {"bootstrap.servers": task["servers"]}
    once = ExactlyOnce(_SHARDS, uuid.uuid4().hex) if task["transactions"] else None
    flags = [f"--checkpoint_dir={task['folder']}"]
    if "guarantee" in task:
        flags.append(f"--delivery_guarantee={task['guarantee']}")
    if task["interval_ms"] is not None:
        flags.append(f"--batch_interval_millis={task['interval_ms']}")
    pipeline = beam.Pipeline(runner=SparkPortableRunner(session), options=PipelineOptions(flags))
    (
        pipeline
        | ReadFromKafka(
            config,
            [task["source"]],
            start="earliest",
            timestamp_policy=CreateTime(task["delay_s"]),
        )
        | _window(task)
        | beam.combiners.Count.PerKey()
        | beam.Map(_line).with_output_types(tuple[bytes | None, bytes])
        | WriteToKafka(config, task["sink"], exactly_once=once)
    )
    result = pipeline.run()

    def stop() -> None:
        result.cancel()
        result.wait_until_finish()

    return stop


if __name__ == "__main__":
    serve(start_classic("local[2]", "ours", {"spark.ui.enabled": "false"}), start)
