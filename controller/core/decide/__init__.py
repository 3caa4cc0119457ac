"""Decisions: an event and a belief in, changes out."""
