"""What reads logs and concludes, whoever executes it; and the executor that is processes of this machine."""
