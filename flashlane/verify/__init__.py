"""The verify lane: a first pass over the compressed prompt, its check, and a second pass."""
