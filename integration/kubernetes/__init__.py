"""Tests of the chart on a Kubernetes of this machine: ``make kubernetes-test``."""
