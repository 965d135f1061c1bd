"""Counts per key in windows, from Kafka to Kafka: ours beside Spark Structured Streaming."""
