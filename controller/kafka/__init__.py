"""The controller of real Kafka brokers: a process beside them that speaks their protocol, to them and to their admins.

What it decides is `core`'s, as everywhere. Here is how it is asked: a server, its APIs, and the process around them.
"""
