"""Thin front ends: parse, call, print."""
