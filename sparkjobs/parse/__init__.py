"""The meaning of a log's line. The catalogue is data, read by all engines; nothing here reads a file."""
