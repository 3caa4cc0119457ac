"""That nobody gets in: secrets, signatures, roles, limits, hostile input."""
