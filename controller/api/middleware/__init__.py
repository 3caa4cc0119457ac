"""The middlewares that every request passes before its handler: access, origin, quota, audit, connections."""
