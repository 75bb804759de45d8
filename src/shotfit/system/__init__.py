"""The machine below: memory, and files that appear whole or not at all."""
