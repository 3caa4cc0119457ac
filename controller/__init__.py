"""Klamm's controller: the brain of a Kafka cluster on ZooKeeper. `DESIGN.md` beside this file is its one page."""
