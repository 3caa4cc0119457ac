"""A cluster's own records: ZooKeeper's transaction logs and snapshots, KRaft's metadata logs and snapshots.

The package owns their binary formats, from bytes to records. It concludes nothing from them.
"""

from __future__ import annotations


class RecordError(Exception):
    """A file is damaged, or says something that this reader does not know; the message says which and where."""
