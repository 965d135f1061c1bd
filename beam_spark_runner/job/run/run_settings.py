"""Settings of a job's run and of its tasks, from its options, its session and its storage."""

import dataclasses
import time
from collections.abc import Callable

from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.session import Session
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import EpochPart
from beam_spark_runner.engine.rows.schema import MAX_VALUE_BYTES
from beam_spark_runner.harness.values.spilled_group import MEMORY_LIMIT_BYTES
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.files.job_storage import JobStorage, check_that_nobody_wants_stable_input
from beam_spark_runner.job.files.shard_places import in_subfolder, shard_places
from beam_spark_runner.job.prepare.packages import share_packages
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.telemetry import TaskTelemetry
from beam_spark_runner.job.watching.progress_lines import JobProgress
from beam_spark_runner.job.watching.stream_watch import StreamWatch
from beam_spark_runner.observing.segment_times import SegmentTimes
from beam_spark_runner.observing.troubles import TroubleKind
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.scheduling.partition_counts import MAX_FROM_BYTES, derive_min_partitions


def run_settings_of(
    prepared: PreparedJob,
    session: Session,
    storage: JobStorage,
    telemetry: TaskTelemetry,
    check_cancelled: Callable[[], None],
) -> RunSettings:
    """Return how a plan runs.

    Args:
        prepared: The job.
        session: The session in which it runs.
        storage: Its storage, which is open.
        telemetry: What its tasks report.
        check_cancelled: Raises if the job is to end.

    Raises:
        UnsupportedFeatureError: A step asks for stable input, which cannot be had here.
    """
    config = prepared.config
    is_stored = storage.rows is not None or prepared.can_be_continued
    if not (is_stored or session.is_local or prepared.plan.is_streaming):
        check_that_nobody_wants_stable_input(prepared.plan.graph)
    epoch = epoch_part_of(prepared, session, storage)
    max_partitions = config.max_parallelism or MAX_FROM_BYTES
    if epoch is not None:
        max_partitions = min(max_partitions, epoch.shards.key_groups)
    return RunSettings(
        job_id=prepared.job_id,
        job_name=config.job_name,
        least_partitions=config.parallelism
        or min(max_partitions, _min_partitions(session, config)),
        most_partitions=max_partitions,
        counts_bytes=config.parallelism is None,
        limits=limits_of(prepared, session, storage, telemetry.route),
        epoch=epoch,
        check_cancelled=check_cancelled,
        observer=telemetry,
        round_budget_s=config.sdf_round_budget_s or None,
        longest_round_s=config.snapshot_min_pause_s if config.recovers_batch else None,
        # The output of such a task would be nowhere but in the driver.
        single_task_budget_s=0.0 if config.recovers_batch else config.single_task_budget_s,
    )


def with_watchers(
    settings: RunSettings,
    watch: StreamWatch,
    segments: SegmentTimes,
    progress: JobProgress | None,
) -> RunSettings:
    """Have a run report what people watch.

    Args:
        settings: The settings of the run.
        watch: Gets the status of epochs, and what goes wrong.
        segments: Gets the beginnings of segments.
        progress: Likewise, and where the run continues. None: nowhere.
    """

    def enter(segment: SegmentId) -> None:
        segments.begin_segment(int(segment), time.time())
        watch.troubles.end(TroubleKind.STORAGE)
        if progress is not None:
            progress.begin_segment(segment)

    settings = dataclasses.replace(
        settings,
        on_epoch=watch.note_epoch,
        on_idle=watch.note_idle,
        on_segment=enter,
        on_trouble=watch.note_trouble,
        rescaled=watch.partitions.following if watch.partitions.is_followed else None,
    )
    if progress is None:
        return settings
    return dataclasses.replace(settings, on_continue=progress.show_continued)


def _min_partitions(session: Session, config: RunnerConfig) -> int:
    slots = session.slots()
    if config.autoscale is not None:  # Spark starts more executors once more tasks wait
        return config.autoscale.nearest(slots)
    return derive_min_partitions(
        slots, shuffle_partitions=session.shuffle_partitions(), can_grow=session.can_grow()
    )


def limits_of(
    prepared: PreparedJob, session: Session, storage: JobStorage, route: Route | None
) -> Limits:
    """Return the limits of all tasks. Packages of SDK harnesses are sent to the executors.

    Args:
        prepared: The job.
        session: The session in which it runs.
        storage: Its storage, which is open.
        route: To the driver's backchannel; None: there is none.
    """
    config, harnesses = prepared.config, prepared.harnesses
    in_program = isinstance(session, InProcessSession)
    if harnesses is not None:
        packages = prepared.packages
        archives = share_packages(packages, prepared.job_id, storage.files, session.share)
        harnesses = dataclasses.replace(
            harnesses,
            archives=archives,
            import_path=prepared.import_path if in_program else (),
        )
    return Limits(
        max_attempts=session.max_task_attempts,
        row_limit_bytes=session.row_limit_bytes,
        max_element_bytes=MAX_VALUE_BYTES,
        cache_bytes=config.max_cache_memory_usage_mb << 20,
        group_memory_bytes=config.group_memory_bytes or MEMORY_LIMIT_BYTES,
        options_json=prepared.options_json,
        working_folder=prepared.working_folder if session.is_local else None,
        import_path=prepared.import_path if session.is_local else (),
        main_classes=prepared.main_classes,
        route=route,
        harnesses=harnesses,
        in_program=in_program,
        step_chunks=config.step_chunks,
        stuck_s=config.stuck_s(is_streaming=prepared.plan.is_streaming),
    )


def epoch_part_of(prepared: PreparedJob, session: Session, storage: JobStorage) -> EpochPart | None:
    """Return what all levels of a streaming plan have. None: the plan does not stream.

    See ``shard_places.in_subfolder`` for the errors.
    """
    if not prepared.plan.is_streaming:
        return None
    config = prepared.config
    places = shard_places(config, storage.mounted, is_local=session.is_local)
    return EpochPart(
        shards=in_subfolder(places, config),
        user_timer_batch=config.user_timer_batch,
        in_flight=config.in_flight,
        leaves_requests=config.leaves_requests,
    )
