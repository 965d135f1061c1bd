"""Pipelines compared with the RDD programs that a good engineer would write in their place."""
