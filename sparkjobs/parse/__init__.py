"""What a line of a log means. The catalogue is data, shared by both engines; nothing here reads a file."""
