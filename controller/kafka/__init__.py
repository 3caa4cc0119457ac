"""The controller of real Kafka brokers: a process beside them that speaks their protocol, to them and to their admins.

The decisions are `core`'s, as everywhere. Here are a server of Kafka's protocol, its APIs, and the process around them.
"""
