"""The job server: Beam's Job API over gRPC, and the jobs that it runs in one Spark application."""
