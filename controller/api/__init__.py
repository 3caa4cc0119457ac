"""The HTTP side of a controller and of every broker: admin API, probes. It decides nothing; it asks."""
