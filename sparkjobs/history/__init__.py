"""A cluster's history out of its own records, in ZooKeeper mode or KRaft: how it stood when, and what follows."""
