"""Tests of `controller.seat`."""
