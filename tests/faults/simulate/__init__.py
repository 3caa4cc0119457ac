"""Many brokers, ZooKeeper, the network and time itself in one process, deterministic from a seed."""
