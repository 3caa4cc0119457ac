"""Tests of `controller.tell`."""
