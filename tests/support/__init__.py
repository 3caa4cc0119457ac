"""Shared by the tests of several packages."""
