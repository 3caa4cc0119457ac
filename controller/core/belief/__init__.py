"""The active controller's belief about its cluster."""
