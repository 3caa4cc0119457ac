"""Files of logs: finding them, reading their kind, and following their growth."""
