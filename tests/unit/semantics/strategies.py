"""Strategies of groupings, as a pipeline's proto has them."""

import copy
import dataclasses

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import TimestampCombiner

from beam_spark_runner.portable.windowing import decode_strategy
from beam_spark_runner.semantics.strategy import Strategy

_IF_NONEMPTY = beam_runner_api_pb2.ClosingBehavior.EMIT_IF_NONEMPTY


def strategy_of(windowing: Windowing, closing_behavior: int = _IF_NONEMPTY) -> Strategy:
    """Return what whoever groups gets of Beam's own object, with the same WindowFn."""
    in_model = copy.copy(windowing)
    in_model.timestamp_combiner = TimestampCombiner.OUTPUT_AT_EOW  # the model lacks one of Python's
    strategy = decode_strategy(coded_strategy(in_model, closing_behavior), windowing.windowfn)
    return dataclasses.replace(strategy, timestamp_combiner=windowing.timestamp_combiner)


def coded_strategy(windowing: Windowing, closing_behavior: int = _IF_NONEMPTY) -> bytes:
    """Return Beam's own object as the graph has it; see ``windowing.fires_empty_when_closed``."""
    proto = windowing.to_runner_api(PipelineContext())
    proto.closing_behavior = closing_behavior
    return bytes(proto.SerializeToString())
