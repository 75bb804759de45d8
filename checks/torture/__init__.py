"""Torture: kills, crashes, full disks, two at once, mutated inputs and leaks.

    python -m torture run --scale 0.1     # everything, a tenth as often; writes the record
    python -m torture run --part fuzz --only image --inputs 1000 --seed 7
    python -m torture write               # docs/reliability.md from the record

Run with checks/ in PYTHONPATH, as `make torture` does. What is drawn is drawn from the seed. A run
that is broken off goes on with what the record does not have yet.
"""
