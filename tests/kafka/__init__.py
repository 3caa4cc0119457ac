"""Tests of `controller.kafka` without real brokers."""
