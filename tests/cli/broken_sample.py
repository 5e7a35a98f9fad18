"""A module that can't be imported."""

MISTAKE = {}["missing"]
