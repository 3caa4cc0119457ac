"""Spark jobs over state-change logs. Imports nothing of the controller; the log's schema is the contract."""
