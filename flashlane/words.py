"""The codes of the route log in words for people.

A reason's full sentence may quote the prompt, so the log keeps codes alone. These sentences say
what a code means; a code that has none here is shown as its own words.
"""

from __future__ import annotations

_WORDS = {
    # what the request is
    "short_prompt": "the prompt is short",
    "structure": "it carries tools, a response format or another set structure",
    "multimodal": "it carries images or files",
    "token_prompt": "the prompt is a list of token ids",
    "exact_ask": "the ask needs every part of the text",
    "broad_ask": "the gist of the text is enough for the ask",
    "unsure": "the ask does not say whether the gist is enough, so it counts as exact",
    # what the lanes cost
    "forced_lane": "the client named the lane",
    "lane_not_configured": "the model has no lane that compresses",
    "lane_not_allowed": "the key may not use the lane's model group",
    "no_saving": "compression would not save enough time",
    "pays": "compression saves time",
    "stays": "the conversation stays in its lane",
    "flips": "the conversation changes its lane",
    "router_error": "the router failed, so the whole prompt was sent",
    # where it went
    "prefix_held": "the deployment holds the beginning of the prompt",
    "prefix_overloaded": "the deployment that holds the beginning was too busy",
    "cache_key": "the deployment served this cache key last",
    "prefix_unknown": "no deployment is known to hold the beginning",
    # who else was asked
    "sidecar_agrees": "the sidecar agrees with the rules",
    "sidecar_safer": "the sidecar called the ask exact",
    "sidecar_broad": "the sidecar called the ask broad",
    "sidecar_ignored": "the sidecar's opinion did not count",
    # how deep drafts go
    "gear": "drafts go as deep as pays best",
    "gear_start": "nothing is known of drafts yet",
    "gear_explored": "another draft depth was tried",
    # what the check said
    "supported": "the text says what the answer says",
    "literal_absent": "the answer states something that the text does not hold",
    "list_incomplete": "the text holds more items than the answer",
    "count_differs": "the text holds another number of them",
    "cut_off": "the answer was cut off",
    "empty_answer": "the answer was empty",
    "refusal": "the answer says that there is nothing",
    "repetition": "the answer repeats itself",
    "json_broken": "the answer is not valid JSON",
    "schema_violated": "the answer breaks the schema",
    "edit_does_not_apply": "an edit does not fit the text",
    "unverifiable": "the answer holds nothing that can be checked",
}


def in_words(code: str) -> str:
    """`code` as a part of a sentence."""
    return _WORDS.get(code) or code.replace("_", " ")


def sentences(codes: str) -> list[dict[str, str]]:
    """Codes joined by commas, as the route log has them, each with its words."""
    return [{"code": code, "text": in_words(code)} for code in codes.split(",") if code]
