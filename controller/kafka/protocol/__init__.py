"""Kafka's wire protocol: codec, protocol levels, nodes, SASL, and how brokers are reached."""
