"""A cluster of real Kafka brokers as a dedicated controller sees it."""
