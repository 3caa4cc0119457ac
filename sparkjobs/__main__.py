"""`python -m sparkjobs`, what `klamm logs` and `klamm report` run, and what spark-submit is given."""

from __future__ import annotations

from sparkjobs.commands.cli import main

if __name__ == "__main__":
    main()
