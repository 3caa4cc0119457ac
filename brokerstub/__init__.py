"""A small broker, with or without records: it registers, obeys the controller, follows leaders and asks for ISRs.

`DESIGN.md` beside this file is its one page.
"""
