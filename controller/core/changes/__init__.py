"""Changes: what a decision asks for, the only effect that the core has."""
