"""The client of ZooKeeper: one session of ours with aiozk's messages."""
