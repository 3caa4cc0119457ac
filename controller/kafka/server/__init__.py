"""The Kafka listener of a dedicated controller."""
