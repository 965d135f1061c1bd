"""Counts per key and window from Kafka to Kafka: this runner and Spark Structured Streaming."""
