"""Transforms in Java, of an expansion service that is started from jars of Maven Central."""
