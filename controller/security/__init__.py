"""Secrets, TLS, and the rule which addresses a process may listen on."""
