"""A broker without records: it registers, obeys the controller, follows leaders, and asks for ISR changes."""
