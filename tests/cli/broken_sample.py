"""A module that can't be imported."""

MISTAKE: int = dict[str, int]()["missing"]
