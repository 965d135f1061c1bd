"""``FullWindowPartition``, the public interface of this folder."""

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

    A partition has the elements that one task of the step upstream has emitted; they are not moved.
    With ``by_key``, a partition has the values of one key. Collections must be bounded.

    Other runners than SparkPortableRunner do not expose partitions: there, all elements of a
    collection are one partition. With ``by_key``, partitions are the same on all runners.

    Each method returns a ``PTransform`` from one collection to another.

    Example:
        means = numbers | FullWindowPartition().aggregate(beam.combiners.MeanCombineFn())
        latest = events | FullWindowPartition.by_key().reduce(max)

    Source: Flink ``DataStream.fullWindowPartition``, FLIP-380.
    """

    def __init__(self) -> None:
        self._is_keyed = False

    @classmethod
    def by_key(cls) -> "FullWindowPartition":
        """Return the variant for a collection of pairs, with one partition for each key.

        Functions get the values of a key, and each result is emitted as a pair with the key.
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
            fn: A function that takes an iterator, which can be read once, and returns an iterable
                of results; or a DoFn with such a ``process``. Without keys, its bundle is the
                partition.
            args: Further positional arguments of ``fn``, side inputs among them.
            kwargs: Further keyword arguments of ``fn``.

        Raises:
            TypeError: ``fn`` is neither a function nor a DoFn, or needs state, timers, or
                parameters of single elements.
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
        """Emit the records in order of their keys. The sort is stable.

        Each record keeps its timestamp and window. Records that do not fit into
        ``--sort_partition_memory`` are sorted on disk.

        Args:
            field: The index of a field in a tuple; the name of an attribute (``a.b``: an attribute
                of an attribute); or a function that returns the key of a record. Keys are compared
                with ``<``.
            order: Whether the smallest or the largest key comes first.

        Raises:
            TypeError: ``field`` or ``order`` has another type.
            ValueError: ``field`` is negative, or not a valid name.
            InvalidPipelineError: When the transform is applied: the keys are known to have no
                order, or the records not to have the field.
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

        Accumulators are never merged. An empty partition emits the output of an empty accumulator.
        Results are in the global window, at its end.

        Args:
            combine_fn: The CombineFn, whose inputs are the records.
            args: Further positional arguments of its methods, side inputs among them.
            kwargs: Further keyword arguments of its methods.

        Raises:
            TypeError: ``combine_fn`` is not an instance of CombineFn.
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
        """Combine the records two by two, in the order in which they arrive.

        The last result is emitted in the global window, at its end. An empty partition emits none.

        Args:
            fn: A function of the result so far, initially the first record, and the next record.
            args: Further positional arguments of ``fn``, side inputs among them.
            kwargs: Further keyword arguments of ``fn``.

        Raises:
            TypeError: ``fn`` is not a function.
        """
        checks.check_function(fn, "reduce")
        return FoldPartition(
            f"Reduce({checks.name_of(fn)})",
            ReduceDoFn(fn, checks.of_empty(args, kwargs)),
            lambda record: checks.reduced_type_of(fn, record),
            (args, kwargs),
            is_keyed=self._is_keyed,
        )
