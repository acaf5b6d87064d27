"""LiteLLM hook: send a conversation to the deployment that served its prefix before.

Prefix affinity among the deployments of one model group: a group with a single deployment is
left alone. What is remembered lives in this process and is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from flashlane.affinity import chain
from flashlane.runtime import runtime_or_none, sole


class KVFlashHook(CustomLogger):
    """Narrows a group's healthy deployments to the one that holds the longest known prefix."""

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        state = runtime_or_none()
        if state is None or len(healthy_deployments) < 2:
            return healthy_deployments
        links = _links(model, messages, request_kwargs or {})
        by_id = {_id(deployment): deployment for deployment in healthy_deployments}
        found = state.affinity.prefer(links, list(by_id))
        return [by_id[found[0]]] if found else healthy_deployments

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        logged = kwargs.get("standard_logging_object") or {}
        deployment, group = logged.get("model_id"), logged.get("model_group")
        state = runtime_or_none()
        if state and isinstance(deployment, str) and isinstance(group, str):
            links = _links(group, kwargs.get("messages"), kwargs.get("optional_params") or {})
            state.affinity.remember(links, deployment)


def _links(model: str, messages: object, kwargs: Mapping[str, Any]) -> list[bytes]:
    items = messages if isinstance(messages, list) else kwargs.get("input")
    if isinstance(items, str):
        items = [items]
    return chain(items if isinstance(items, list) else [], seed=model)


def _id(deployment: Any) -> str:
    info = deployment.get("model_info") if isinstance(deployment, Mapping) else None
    return str(info.get("id")) if isinstance(info, Mapping) else ""


handler = sole(KVFlashHook)
