"""What a line of a log means. The catalogue is data, read by everybody; nothing here reads a file."""
