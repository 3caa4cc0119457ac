"""Tests of `controller.cli`."""
