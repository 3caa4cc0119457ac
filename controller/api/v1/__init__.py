"""The handlers below `/v1`, and the RPCs of brokers."""
