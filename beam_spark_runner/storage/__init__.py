"""Folders that the driver and all tasks share: mounted, in object stores, in HDFS."""
