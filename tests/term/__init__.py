"""Tests of `controller.term`."""
