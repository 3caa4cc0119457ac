"""HTTP between processes: bodies, signatures and the client."""
