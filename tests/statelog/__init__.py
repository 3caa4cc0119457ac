"""Tests of `controller.statelog`."""
