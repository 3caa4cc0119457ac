"""Secrets, TLS, and the rule about what may listen where."""
