"""The study behind `first_fraction="auto"`: rules that were compared, and what was measured."""
