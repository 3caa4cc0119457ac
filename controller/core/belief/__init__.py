"""What the active controller believes of its cluster."""
