"""Random faults on real processes and a real ZooKeeper: the primitives, the schedules, the rounds and their verdict."""
