"""The page for people: one HTML file out of the answers, nothing to install, nothing to fetch."""
