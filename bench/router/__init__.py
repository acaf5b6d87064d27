"""Benchmarks of the router."""
