"""The daemon of Python workers of a job server that ``test_job_servers_killed`` kills."""

import runpy

if __name__ == "__main__":
    from integration.server_deaths import watch_in_workers

    watch_in_workers()
    runpy.run_module("beam_spark_runner.spark.worker.daemon", run_name="__main__")
