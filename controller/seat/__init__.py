"""The seat: how `/controller` is won and given up, and the guard that ends a term by the clock."""
