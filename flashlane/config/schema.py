"""The JSON Schema of a config file, for editors and for checks without flashlane."""

from __future__ import annotations

from typing import Any

from flashlane.config.settings import FlashlaneConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """The schema of a whole LiteLLM config: what is not flashlane's is left to LiteLLM.

    What one key asks of another, such as a model group that must exist, no schema says:
    `load_config` checks that too.
    """
    section = FlashlaneConfig.model_json_schema()
    parts = section.pop("$defs")
    return {
        "$schema": DIALECT,
        "title": "LiteLLM config with a flashlane section",
        "type": "object",
        "properties": {"flashlane": section},
        "$defs": parts,
    }
