"""Changes: the result of a decision, and the only effect that the core has."""
