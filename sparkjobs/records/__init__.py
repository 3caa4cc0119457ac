"""What a cluster itself wrote down: ZooKeeper's transaction logs and snapshots, KRaft's metadata logs and snapshots.

Owns their binary formats: from bytes to records, and nothing concluded from them.
"""
