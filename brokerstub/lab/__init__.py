"""The lab: a real ZooKeeper, broker processes, proxies between them, and the faults one inflicts on all of these."""
