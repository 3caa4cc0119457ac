"""Projections of changes: znode writes, requests to brokers, log lines, counts of states."""
