"""What every reader of records refuses with."""

from __future__ import annotations


class RecordError(Exception):
    """A file is damaged, or says something that this reader does not know; the message says which and where."""
