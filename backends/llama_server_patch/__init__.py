"""The patched llama-server: new sources, hooks patch, and the build that joins them."""
