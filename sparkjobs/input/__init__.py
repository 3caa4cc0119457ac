"""Files of logs: which there are, what they hold, and how they grow."""
