"""``FullWindowPartition``: what users apply."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam

from beam_spark_runner.transforms.full_window import checks
from beam_spark_runner.transforms.full_window.functions import AggregateDoFn, ReduceDoFn
from beam_spark_runner.transforms.full_window.keys import Order, key_of
from beam_spark_runner.transforms.full_window.mapping import FunctionDoFn, MapPartitionDoFn
from beam_spark_runner.transforms.full_window.steps import FoldPartition, SortPartition


class FullWindowPartition:
    """All elements of a partition as one window, which fires at the end of the input.

    A partition is what one task of the step before has made; its elements are not moved. With
    ``by_key``, the values of a key are a partition. Collections have to be bounded.

    Other runners than SparkPortableRunner know no partitions: there, all elements of a collection
    are one; those of a keyed collection are one for each key, as here.

    Each method returns a transform, which takes a collection and gives one.

    Example:
        means = numbers | FullWindowPartition().aggregate(beam.combiners.MeanCombineFn())
        latest = events | FullWindowPartition.by_key().reduce(max)

    Source: Flink ``DataStream.fullWindowPartition``, FLIP-380.
    """

    def __init__(self) -> None:
        self._is_keyed = False

    @classmethod
    def by_key(cls) -> "FullWindowPartition":
        """Return the form for a collection of pairs, whose partitions are the values of a key.

        Functions get values, and each result is a pair of the key and what the function has made.
        """
        keyed = cls()
        keyed._is_keyed = True
        return keyed

    def map_partition(
        self, fn: Callable[..., Any] | beam.DoFn, *args: Any, **kwargs: Any
    ) -> beam.PTransform:
        """Run a function over an iterator of the records, while they arrive.

        Results are in the global window, at its end. An empty partition is an empty iterator.

        Args:
            fn: takes an iterator, which can be read once, and returns an iterable of results. Or a
                DoFn whose ``process`` does so; without keys, its bundle is the partition.
            args: further arguments of ``fn``, side inputs among them.
            kwargs: the same, by name.

        Raises:
            TypeError: ``fn`` is no such function, or asks Beam for more than the records.
        """
        checks.check_map_partition(fn)
        users = fn if isinstance(fn, beam.DoFn) else FunctionDoFn(fn)
        return FoldPartition(
            f"MapPartition({checks.name_of(fn)})",
            MapPartitionDoFn(users, checks.of_empty(args, kwargs)),
            lambda _: checks.result_type_of(fn),
            (args, kwargs),
            is_keyed=self._is_keyed,
        )

    def sort_partition(
        self, field: int | str | Callable[[Any], Any], order: Order = Order.ASCENDING
    ) -> beam.PTransform:
        """Emit the records in order; those with equal keys in the order in which they came.

        Each record keeps its timestamp and window. Those that do not fit into
        ``--sort_partition_memory`` are sorted on disk.

        Args:
            field: the place of a field in a tuple; the name of an attribute (``a.b``: an attribute
                of an attribute); or a function that gives the key of a record. Keys of a partition
                are compared with ``<``.
            order: whether the smallest or the largest key comes first.

        Raises:
            TypeError: ``field`` or ``order`` is something else.
            ValueError: ``field`` is negative, or no name.
            InvalidPipelineError: on application: the keys are known to have no order, or the
                records to have no such field.
        """
        checks.check_field(field)
        checks.check_order(order)
        return SortPartition(
            f"SortPartition({checks.name_of(field)})",
            field,
            key_of(field),
            descends=order is Order.DESCENDING,
            is_keyed=self._is_keyed,
        )

    def aggregate(self, combine_fn: beam.CombineFn, *args: Any, **kwargs: Any) -> beam.PTransform:
        """Fold the records into one accumulator, and emit its output.

        Accumulators are never merged. An empty partition gives the output of the initial one.
        Results are in the global window, at its end.

        Args:
            combine_fn: of the records.
            args: further arguments of its methods, side inputs among them.
            kwargs: the same, by name.

        Raises:
            TypeError: ``combine_fn`` is no CombineFn.
        """
        checks.check_combine_fn(combine_fn)
        return FoldPartition(
            f"Aggregate({checks.name_of(combine_fn)})",
            AggregateDoFn(combine_fn, checks.of_empty(args, kwargs)),
            lambda _: checks.output_type_of(combine_fn),
            (args, kwargs),
            is_keyed=self._is_keyed,
        )

    def reduce(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> beam.PTransform:
        """Combine the records two by two, in the order in which they come.

        The last result is emitted, in the global window, at its end; of an empty partition none.

        Args:
            fn: takes the result so far, which is the first record at first, and the next record.
            args: further arguments of ``fn``, side inputs among them.
            kwargs: the same, by name.

        Raises:
            TypeError: ``fn`` is no function.
        """
        checks.check_function(fn, "reduce")
        return FoldPartition(
            f"Reduce({checks.name_of(fn)})",
            ReduceDoFn(fn, checks.of_empty(args, kwargs)),
            lambda record: checks.reduced_type_of(fn, record),
            (args, kwargs),
            is_keyed=self._is_keyed,
        )
