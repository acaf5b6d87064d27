"""Requests on their way: what is known of each until its one route record is written."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flashlane.affinity import Belief, Measured, Trip
from flashlane.decision import Decision, Reason
from flashlane.payload import as_mapping, get, payloads
from flashlane.prefix import Chain
from flashlane.routelog import RouteRecord, Status
from flashlane.verify.check import FIRST_FAILED, NUMBER_KEY, Check

FLIGHT_KEY = "flashlane_flight"
"""Key of the metadata that names a request's flight: LiteLLM's own call id may be the client's."""
METADATA_KEYS = ("litellm_metadata", "metadata")
"""Where LiteLLM keeps what its hooks and logs share: the first for Anthropic and Responses."""
_MAX_FLIGHTS = 10_000
_MAX_LANDED = 256
"""LiteLLM's log event may write a record before the last hooks have run."""


@dataclass(frozen=True)
class FirstPass:
    """What a first pass took whose answer was not given out. Prompt tokens processed, and ms."""

    tokens: int | None
    ms: float
    cost: float | None = None


@dataclass
class Flight:
    """One request in the proxy. `started` is a monotonic time in seconds.

    `flight_id` is ours, by which hooks find the flight; `request_id` names its record.
    """

    flight_id: str
    request_id: str
    key_alias: str
    endpoint: str
    model: str
    stream: bool
    key_id: str = ""
    started: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)
    decision: Decision | None = None
    first_chunk: float | None = None
    last_chunk: float | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    deployment: str = ""
    attempts: int = 0
    engine: str = ""
    """Under which name it is remembered what the answer tells of the engine that gave it."""
    group: str = ""
    """The model group that the last attempt went to."""
    sent: float | None = None
    """When the last attempt went to an engine, monotonic."""
    gear: int | None = None
    """What the last attempt asked its engine for; None for nothing."""
    asked_gear: bool = False
    """The client names a gear itself, right or wrong."""
    servers: dict[str, str] = field(default_factory=dict)
    """By model group: the server that the group's last attempt went to."""
    memory: str = ""
    """Under which name its conversation is remembered; empty for none."""
    chain: Chain | None = None
    """The prompt's beginnings, where their holder is to be remembered without a trip."""
    belief: Belief | None = None
    """What the direct lane was thought to hold of the prompt, in estimated tokens."""
    learned: bool = False
    """What the answer tells has been taken in."""
    cost: float | None = None
    ended: bool = False
    trip: Trip | None = None
    placement: Reason | None = None
    sidecar: str = ""
    """What the classifier beside the rules said, or how it failed; empty where it was not asked."""
    verdict: str = ""
    """How the check of a first pass ended: see `RouteRecord.verdict`."""
    verdict_reasons: str = ""
    answered_by: str = ""
    first_pass: FirstPass | None = None
    check: Check | None = None
    """The passes of a request in the verify lane."""
    whole: dict[str, Any] = field(default_factory=dict)
    """The body's fields as they were before they were shortened at the proxy."""
    _summary: dict[str, Any] = field(default_factory=dict)
    _spent: dict[str, Any] = field(default_factory=dict)

    def announce(self, decision: Decision, metadata: dict[str, Any]) -> None:
        """Leave the decision where headers, spend metadata and tags of LiteLLM take it from."""
        self.decision = decision
        self.gear = decision.gear
        self._summary = metadata["flashlane"] = decision.to_json(with_ask=False)
        self._spent = {
            "lane": decision.lane,
            "reasons": decision.reason_codes,
            "keep_ratio": decision.keep_ratio,
        }
        spend = metadata.get("spend_logs_metadata")
        metadata["spend_logs_metadata"] = {
            **(spend if isinstance(spend, dict) else {}),
            "flashlane": self._spent,
        }
        tags = metadata.get("tags")
        metadata["tags"] = [*(tags if isinstance(tags, list) else []), f"lane:{decision.lane}"]

    def placed(self, reason: Reason) -> None:
        """Say why the request goes to the deployment it goes to, in the place of an earlier try's.

        LiteLLM has copied the metadata by now, but not the dicts in it.
        """
        self.placement = reason
        self._summary["placement"] = reason.text
        if self.decision is not None:
            decision = replace(self.decision, reasons=(*self.decision.reasons, reason))
            self._summary["reasons"] = decision.to_json(with_ask=False)["reasons"]
            self._spent["reasons"] = decision.reason_codes

    def reached(self, group: str, engine: str, server: str) -> None:
        """The attempt at `group` goes out now, to `engine`, of which `server` is the run."""
        self.group, self.engine, self.sent = group, engine, time.monotonic()
        self.servers[group] = server

    def attempted(self, group: str) -> None:
        """LiteLLM tries model group `group` now."""
        check = self.check
        if check and check.current == 1 and group != check.group and not check.fell_back:
            check.fell_back = True
            self.judged(False, FIRST_FAILED)
            self._put_aside()

    def judged(self, accepted: bool, reasons: str) -> None:
        """Note the verdict on the first pass; `reasons` are comma-joined codes."""
        self.verdict = "accepted" if accepted else "doubted"
        self.verdict_reasons = reasons

    def left_unchecked(self) -> None:
        """The client went; what the first pass's end looked like then is no verdict."""
        check = self.check
        if check and check.current == 1 and not (check.fell_back or self.answered_by):
            self.verdict, self.verdict_reasons = "unchecked", ""

    def next_pass(self) -> None:
        """The second pass begins; its figures take the place of the first one's."""
        if self.check is not None:
            self.check.current = 2
            if not self.check.fell_back:
                self._put_aside()
        if self.trip is not None:
            self.trip.tried.clear()  # no attempt has failed there

    def _put_aside(self) -> None:
        tokens = self.timings.get("prompt_n")
        if tokens is None:
            tokens = _first_int(self.usage, "prompt_tokens", "input_tokens")
        cost = self.check.costs.get(1) if self.check else None
        self.first_pass = FirstPass(tokens, 1000.0 * (time.monotonic() - self.started), cost)
        self.timings, self.usage = {}, {}

    def verdict_note(self) -> dict[str, str]:
        """What the client is told of the check; empty where there is none to tell of."""
        if not self.verdict:
            return {}
        return {
            "verdict": self.verdict,
            "reasons": self.verdict_reasons,
            "answered_by": self.answered_by,
        }

    def logged(self, number: int, cost: float | None, response: object) -> None:
        """LiteLLM has logged pass `number`, which it may do when the next one runs already."""
        check, self.cost = self.check, cost
        if check is not None:
            check.costs[number] = cost
            self.cost = check.cost
            if self.first_pass is not None and number < check.current:
                usage = as_mapping(get(response, "usage"))
                tokens = self.first_pass.tokens or _first_int(usage, "prompt_tokens")
                self.first_pass = replace(self.first_pass, tokens=tokens, cost=cost)
                return
        self.see_payload(response)

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens that the engine read of the prompt, in its cache or not."""
        if self.timings.get("prompt_n") is not None:
            return int(self.timings["prompt_n"]) + int(self.timings.get("cache_n") or 0)
        return _first_int(self.usage, "prompt_tokens", "input_tokens")

    @property
    def reused_tokens(self) -> int | None:
        """Tokens of the prompt that were in the engine's cache."""
        details = as_mapping(self.usage.get("prompt_tokens_details"))
        for values, name in (
            (as_mapping(self.timings.get("kvflash")), "restored_tokens"),
            (self.timings, "cache_n"),
            (details, "cached_tokens"),
            (self.usage, "cache_read_input_tokens"),
        ):
            if values.get(name) is not None:
                return int(values[name])
        return None

    def measured(self) -> Measured:
        """What the answer told. What a shortened prompt found says nothing of the whole one."""
        pflash = as_mapping(self.timings.get("pflash"))
        original = pflash.get("original_tokens")
        shortened = original is not None and original != pflash.get("kept_tokens")
        busy_ms = 1000.0 * (time.monotonic() - self.started)
        if self.timings.get("prompt_ms") is not None:
            busy_ms = self.timings["prompt_ms"] + (self.timings.get("predicted_ms") or 0.0)
        return Measured(
            prompt_tokens=original or self.prompt_tokens,
            reused_tokens=None if shortened else self.reused_tokens,
            processed_tokens=self.timings.get("prompt_n"),
            prefill_ms=self.timings.get("prompt_ms"),
            busy_ms=busy_ms,
        )

    def see_chunk(self, chunk: object) -> None:
        """Take time to first token, timings and usage from one streamed chunk."""
        self.last_chunk = time.monotonic()
        if self.first_chunk is None:
            self.first_chunk = self.last_chunk
        for payload in payloads(chunk):
            self.see_payload(payload)

    def see_payload(self, payload: object) -> None:
        """Take timings and usage from a response, or from a part of one, of any API."""
        timings = get(payload, "timings")
        if isinstance(timings, Mapping):
            self.timings.update(timings)
        usage = as_mapping(get(payload, "usage"))
        if usage:
            self.usage.update({k: v for k, v in usage.items() if v is not None})
        for inner in ("response", "message"):  # Responses' and Anthropic's stream events
            value = get(payload, inner)
            if value is not None and value is not payload:
                for key in ("timings", "usage"):
                    part = as_mapping(get(value, key))
                    if part:
                        target = self.timings if key == "timings" else self.usage
                        target.update({k: v for k, v in part.items() if v is not None})

    def record(self, status: Status, error: str, *, store_text: bool) -> RouteRecord:
        """The finished record of this flight."""
        decision, timings = self.decision, self.timings
        pflash = timings.get("pflash") or {}
        prompt = self.prompt_tokens
        ttft_ms = timings.get("prompt_ms")
        if self.stream:
            first = self.first_chunk
            ttft_ms = None if first is None else 1000.0 * (first - self.started)
        elif ttft_ms is not None and self.first_pass is not None:
            ttft_ms += self.first_pass.ms
        completed = timings.get(
            "predicted_n", _first_int(self.usage, "completion_tokens", "output_tokens")
        )
        # A compressed prompt whose engine's report was lost on the way: its length is not known.
        compressed = decision and decision.lane != "direct" and self.answered_by != "direct"
        original = None if compressed and not pflash else prompt
        reasons = [decision.reason_codes] if decision else []
        if self.placement:
            reasons.append(self.placement.code)
        return RouteRecord(
            request_id=self.request_id,
            time=self.wall,
            key_alias=self.key_alias,
            key_id=self.key_id,
            endpoint=self.endpoint,
            model=self.model,
            group=decision.group if decision else "",
            deployment=self.deployment,
            lane=decision.lane if decision else "",
            exact=decision.exact if decision else None,
            kind=decision.kind if decision else "",
            confidence=decision.confidence if decision else None,
            gear=self.gear,
            conversation=decision.conversation if decision else "",
            keep_ratio=decision.keep_ratio if decision else None,
            reasons=",".join(reasons),
            placement=self.placement.text if self.placement else "",
            stream=self.stream,
            estimated_tokens=decision.estimated_tokens if decision else None,
            prompt_tokens=prompt,
            original_tokens=pflash.get("original_tokens", original),
            kept_tokens=pflash.get("kept_tokens", prompt),
            pflash_reason=str(pflash.get("reason") or ""),
            score_ms=pflash.get("score_ms"),
            predicted_ttft_ms=decision.costs_ms.get(decision.lane) if decision else None,
            predicted_direct_ms=decision.costs_ms.get("direct") if decision else None,
            ttft_ms=ttft_ms,
            total_ms=1000.0 * (time.monotonic() - self.started),
            completion_tokens=completed,
            decode_tokens_per_s=timings.get(
                "predicted_per_second", self._arrival_tokens_per_s(completed)
            ),
            cached_tokens=self.reused_tokens,
            draft_tokens=timings.get("draft_n"),
            draft_accepted=timings.get("draft_n_accepted"),
            cost=self.cost,
            verdict=self.verdict,
            verdict_reasons=self.verdict_reasons,
            answered_by=self.answered_by,
            first_pass_tokens=self.first_pass.tokens if self.first_pass else None,
            first_pass_ms=self.first_pass.ms if self.first_pass else None,
            first_pass_cost=self.first_pass.cost if self.first_pass else None,
            sidecar=self.sidecar,
            status=status,
            error=error,
            ask=decision.ask if decision and store_text else None,
        )

    def _arrival_tokens_per_s(self, tokens: int | None) -> float | None:
        """Decode speed of a stream whose engine told none, by when its chunks came."""
        first, last = self.first_chunk, self.last_chunk
        if not tokens or tokens < 2 or first is None or last is None or last <= first:
            return None
        return (tokens - 1) / (last - first)


class Flights:
    """The flights of this process, oldest dropped first beyond a fixed number."""

    def __init__(self, limit: int = _MAX_FLIGHTS) -> None:
        self._limit = limit
        self._flights: OrderedDict[str, Flight] = OrderedDict()
        self._landed: OrderedDict[str, Flight] = OrderedDict()

    def begin(self, flight: Flight) -> None:
        self._flights[flight.flight_id] = flight
        while len(self._flights) > self._limit:
            self._flights.popitem(last=False)

    def get(self, flight_id: object) -> Flight | None:
        return self._flights.get(flight_id) if isinstance(flight_id, str) else None

    def of(self, data: Mapping[str, Any]) -> Flight | None:
        """The flight of a hook's request data or keyword arguments, while it is in the air."""
        return self.get(flight_id_in(data))

    def seen(self, data: Mapping[str, Any]) -> Flight | None:
        """The same, also for some time after its end."""
        flight_id = flight_id_in(data)
        landed = self._landed.get(flight_id) if isinstance(flight_id, str) else None
        return self.get(flight_id) or landed

    def end(self, flight: Flight) -> bool:
        """Take `flight` out; False when it had ended before."""
        first = not flight.ended
        flight.ended = True
        flight.whole = {}
        if flight.check is not None:
            flight.check.view = None
        self._flights.pop(flight.flight_id, None)
        self._landed[flight.flight_id] = flight
        while len(self._landed) > _MAX_LANDED:
            self._landed.popitem(last=False)
        return first

    def __len__(self) -> int:
        return len(self._flights)


def flight_id_in(data: Mapping[str, Any]) -> object:
    """The flight id that a hook's data carries, or None."""
    return _metadata_value(data, FLIGHT_KEY)


def pass_in(data: Mapping[str, Any]) -> int:
    """Which pass of a request in the verify lane a hook's data belongs to."""
    return 2 if _metadata_value(data, NUMBER_KEY) == 2 else 1


def group_in(data: Mapping[str, Any]) -> str:
    """The model group that LiteLLM's router tries; empty where it does not say."""
    return str(_metadata_value(data, "model_group") or "")


def _metadata_value(data: Mapping[str, Any], name: str) -> object:
    for holder in (data, data.get("litellm_params")):
        for key in METADATA_KEYS:
            metadata = holder.get(key) if isinstance(holder, Mapping) else None
            if isinstance(metadata, Mapping) and metadata.get(name):
                return metadata[name]
    return None


def summary_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `Flight.announce` left in a request's metadata; empty where there is nothing."""
    for key in METADATA_KEYS:
        metadata = data.get(key)
        if isinstance(metadata, Mapping) and isinstance(metadata.get("flashlane"), dict):
            found: dict[str, Any] = metadata["flashlane"]
            return found
    return {}


def _first_int(values: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if isinstance(values.get(name), int):
            return int(values[name])
    return None
