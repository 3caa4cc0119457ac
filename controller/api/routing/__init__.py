"""The way of a request to the active controller."""
