"""LiteLLM hooks. They hold no state: see `flashlane.runtime`."""
