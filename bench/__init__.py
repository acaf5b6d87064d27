"""Benchmarks: what is measured, against which goals, and what came out."""
