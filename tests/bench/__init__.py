"""`make bench`: how long the controller takes, measured on a real ZooKeeper. Never a timed test."""
