"""Taking the seat from Kafka's brokers: what speaks against it, and the API that asks for it."""
