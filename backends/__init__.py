"""Engines: the patched llama-server, its build, and the supervisor that runs it."""
