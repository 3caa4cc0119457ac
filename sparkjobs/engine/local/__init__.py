"""Reads logs and concludes, with any executor; and the local executor, which is processes of this machine."""
