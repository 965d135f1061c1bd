"""Strategies of groupings, as a pipeline's proto has them."""

import copy
import dataclasses

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import TimestampCombiner

from beam_spark_runner.portable.windowing import decode_strategy
from beam_spark_runner.semantics.strategy import Strategy


def strategy_of(
    windowing: Windowing,
    closing_behavior: int = beam_runner_api_pb2.ClosingBehavior.EMIT_IF_NONEMPTY,
) -> Strategy:
    """Return what whoever groups gets of Beam's own object, with the same WindowFn."""
    in_model = copy.copy(windowing)
    in_model.timestamp_combiner = TimestampCombiner.OUTPUT_AT_EOW  # the model lacks one of Python's
    proto = in_model.to_runner_api(PipelineContext())
    proto.closing_behavior = closing_behavior
    strategy = decode_strategy(proto.SerializeToString(), windowing.windowfn)
    return dataclasses.replace(strategy, timestamp_combiner=windowing.timestamp_combiner)
