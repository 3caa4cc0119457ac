"""A cluster's history out of its own records, in ZooKeeper mode or KRaft: its state at each moment, and the
conclusions.
"""
