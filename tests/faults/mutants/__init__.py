"""Deliberate bugs, a patch each, and the runner that shows each of them to be caught."""
