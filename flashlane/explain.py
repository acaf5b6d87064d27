"""`flashlane explain`: the router's decision for a request that is not sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashlane.config import FlashlaneConfig, load_config, load_litellm
from flashlane.decision import Decision, LaneOption
from flashlane.request import Lane, RequestError, shown
from flashlane.router import DEFAULT_PREFILL_TOKENS_PER_S, route


class Explainer:
    """Decides as the proxy would under `config_path`, or with both lanes assumed without one."""

    def __init__(self, config_path: Path | None, headers: Mapping[str, str] | None = None) -> None:
        self._path = config_path
        self._headers = headers
        self._config = load_config(config_path) if config_path else FlashlaneConfig()
        self._deployments = tuple(load_litellm(config_path)) if config_path else ()

    def decide(self, text: str) -> Decision:
        """Raises `ValueError` for text that is no JSON object, `RequestError` as the proxy does."""
        try:
            body = json.loads(text)
        except RecursionError as error:
            raise ValueError("the request is nested too deep") from error
        except ValueError as error:
            raise ValueError(f"the request is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise ValueError(f"the request is a JSON {type(body).__name__}; it must be an object")
        lanes: dict[Lane, LaneOption] | None = None
        model = str(body.get("model") or "")
        groups = sorted({d.model_name for d in self._deployments})
        if self._path is None:
            lanes = {
                "direct": LaneOption(model, DEFAULT_PREFILL_TOKENS_PER_S),
                "pflash": LaneOption(f"{model}-pflash", DEFAULT_PREFILL_TOKENS_PER_S),
            }
        elif model not in groups and not any("*" in group for group in groups):
            raise ValueError(f"model is {shown(model)}; {self._path.name} has: {', '.join(groups)}")
        return route(body, self._headers, None, self._config, self._deployments, lanes=lanes)

    def line(self, line: bytes, number: int) -> dict[str, Any]:
        """One line of a batch; a bad line becomes an object with `error` and its number."""
        try:
            return self.decide(line.decode("utf-8")).to_json()
        except (RequestError, ValueError) as error:
            return {"error": str(error), "line": number}
