"""A term as the active controller, the daemon that races for it, and the handle that the process holds."""
