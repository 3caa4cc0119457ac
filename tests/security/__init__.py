"""Protection from strangers: secrets, signatures, roles, limits, hostile input."""
