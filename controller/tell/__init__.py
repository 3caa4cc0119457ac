"""Telling brokers: the requests that each has still to receive, their order, and the meaning of the answers."""
