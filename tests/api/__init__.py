"""Tests of `controller.api`."""
