"""Tests of `controller.wire`."""
