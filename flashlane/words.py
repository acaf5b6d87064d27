"""The codes of the route log in words for people.

A reason's full sentence may quote the prompt, so the log keeps codes alone. These sentences say
what a code means; a code that has none here is shown as its own words.
"""

from __future__ import annotations

WORDS = {
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
    "gear_asked": "the client names the draft depth",
    # what the check said: of a first answer that stands
    "supported": "the text says what the answer says",
    "whole_prompt": "nothing had been left out, so this is the direct answer",
    # of one that could not be checked
    "first_pass_failed": "the first pass failed",
    "check_failed": "the check itself failed",
    "too_large": "the answer is too large to check",
    "long_answer": "the answer is too long to check",
    "long_quote": "the quotation is too long to check",
    "many_claims": "the answer says more than can be checked",
    "unverifiable": "the answer holds nothing that can be checked",
    "several_answers": "more than one answer was given",
    "tool_calls": "the answer calls a tool",
    "no_ask": "no ask was found to hold the answer against",
    "exclusion": "the ask excludes something",
    "yes_or_no": "a yes or no can be proved by no value",
    "condition_unclear": "the ask's condition holds for some items only",
    "schema_broken": "the request's schema cannot be applied",
    "schema_pattern": "the request's schema has a pattern that is too costly to try",
    # of its end and its form
    "cut_off": "the answer was cut off",
    "unfinished": "the answer did not end by itself",
    "empty_answer": "the answer is empty",
    "refusal": "the answer says that there is nothing",
    "repetition": "the answer repeats itself",
    "json_broken": "the answer is not valid JSON",
    "csv_broken": "the answer is not valid CSV",
    "yaml_broken": "the answer is not YAML that can be checked",
    "schema_violated": "the answer breaks the schema",
    # of what it states
    "literal_absent": "the answer states something that the text does not hold",
    "nothing_new": "the answer says only what the ask does",
    "no_place": "no word of the ask stands in the text",
    "not_in_one_place": "no single place of the text says what the answer says",
    "unseen_place": "a place that matches the ask had been left out",
    "weak_place": "what the answer states does not stand where the ask looks",
    "better_place": "another place of the text matches the ask better",
    "rival_place": "another place of the text matches the ask as well",
    "rival_in_place": "something else of the kind stands there too",
    "negation": "the answer denies what the text does not",
    "mention_differs": "the text says otherwise",
    "no_share": "the ask wants a share and gets none",
    "no_time": "the ask wants a time and gets none",
    "quote_absent": "the quotation is not in the text",
    "quote_cut": "the quotation is a piece of a sentence",
    # of a list or a count
    "list_incomplete": "the text holds more items than the answer",
    "one_item": "there is one item where the ask wants all of them",
    "item_absent": "an item of the list is not in the text",
    "item_misplaced": "an item does not stand where the others do",
    "no_pattern": "the items share no pattern in the text",
    "count_differs": "the text holds another number of them",
    "count_unclear": "what is to be counted shares no pattern in the text",
    "no_count": "the ask wants a number and gets none",
    # of an edit
    "no_edit": "the ask wants code changed, and there is no edit",
    "edit_does_not_apply": "an edit does not fit the text",
    "edit_ambiguous": "an edit fits the text at several places",
    "edit_malformed": "an edit is malformed",
    "edit_overlaps": "two edits overlap",
    "edit_unplaced": "an edit names no line of the text",
}


def in_words(code: str) -> str:
    """`code` as a part of a sentence."""
    return WORDS.get(code) or code.replace("_", " ")


def sentences(codes: str) -> list[dict[str, str]]:
    """Codes joined by commas, as the route log has them, each with its words."""
    return [{"code": code, "text": in_words(code)} for code in codes.split(",") if code]
