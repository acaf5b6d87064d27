"""Measures KVFlash: what is processed of a prompt that was seen before, and what that costs."""
