"""Torture: kills, crashes, full disks, two at once, mutated inputs and leaks.

    python -m torture run --scale 0.1     # everything, a tenth as often; writes the record
    python -m torture run --only fuzz --seed 7
    python -m torture write               # docs/reliability.md from the record

Run with checks/ in PYTHONPATH, as `make torture` does. What is drawn is drawn from the seed.
"""
