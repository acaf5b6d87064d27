"""flashlane: long prompts on one's own hardware, behind LiteLLM, in lanes."""

__version__ = "0.1.0"
