"""Tests of `controller.loop`."""
