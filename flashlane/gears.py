"""How far ahead a drafter runs: the gear that was measured to write fastest. Pure.

A drafter proposes `n_max` tokens and the model checks them in one pass, so that a draft which is
taken is worth several passes and one which is not was work for nothing. What wins depends on the
machine, on the drafter and on what is written: code repeats itself, a brainstorm does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashlane.decision import Drafting, GearRecord, Reason

GEAR_FIELD = "speculative.n_max"
"""The field of a request's body that llama-server reads the gear from."""
_ENGINE_N_MAX = 3
"""llama-server's own `--spec-draft-n-max`, where none is named."""
_UNBOUND_N_MAX = 64
"""Drafts that are looked up in the text have no such bound."""
_MODEL_FLAGS = (
    "--model-draft",
    "--spec-draft-model",
    "-md",
    "--spec-draft-hf",
    "--hf-repo-draft",
    "-hfd",
    "-hfrd",
)
_TYPE_FLAG = "--spec-type"
_LOOKUP_FLAG = "--spec-default"
_LIMIT_FLAG = "--spec-draft-n-max"
_HOPELESS = 0.1
"""Acceptance below which drafting loses whatever the drafter costs."""
_PROMISING = 0.6
"""Acceptance from which on a deeper gear is tried before a shallower one."""


def limit_in(props: object) -> int | None:
    """The highest gear by a server's `/props`: 0 where nothing drafts, None if it does not say."""
    gears = props.get("gears") if isinstance(props, Mapping) else None
    if not isinstance(gears, Mapping):
        return None
    limit, types = gears.get("n_max"), gears.get("types")
    if type(limit) is not int or limit < 0 or not isinstance(types, list):
        return None
    return limit if types else 0


def draft_limit(args: Sequence[str]) -> int | None:
    """Tokens that a backend with `args` drafts at most; None where it has no drafter."""
    named: dict[str, str] = {}
    for number, argument in enumerate(args):
        flag, equals, value = argument.partition("=")
        named[flag] = value if equals else (args[number + 1] if number + 1 < len(args) else "")
    types = [t for t in named.get(_TYPE_FLAG, "").split(",") if t not in ("", "none")]
    drafts = any(flag in named for flag in _MODEL_FLAGS)
    drafts = drafts or any(not t.startswith("ngram") for t in types)
    if not (drafts or types or _LOOKUP_FLAG in named):
        return None
    limit = named.get(_LIMIT_FLAG, "")
    if limit.isdigit():
        return int(limit)
    return _ENGINE_N_MAX if drafts else _UNBOUND_N_MAX


def choices_within(choices: Sequence[int], limit: int) -> tuple[int, ...]:
    """`choices` as an engine can take them that drafts at most `limit` tokens."""
    return tuple(sorted({min(choice, limit) for choice in choices}))


def gear_for(kind: str, drafting: Drafting) -> tuple[int, Reason]:
    """The gear for an answer to an ask of `kind`, and why.

    What all kinds measured stands in for a gear that this kind has not tried. At every
    `explore_every`th request of the kind a neighbour of the best gear is tried instead: by the
    count of requests, never by chance.
    """
    if drafting.asked is not None:
        gear = min(drafting.asked, drafting.limit)
        return gear, Reason("gear_asked", f"gear {gear}: the client asks for {drafting.asked}")
    choices, records = drafting.choices, drafting.records
    of_all, of_kind = records.get("", {}), records.get(kind, {})
    known = {g: of_kind.get(g) or of_all[g] for g in choices if g in of_kind or g in of_all}
    if not known:
        start = next((gear for gear in choices if gear), choices[0])
        return start, Reason("gear_start", f"gear {start}: nothing is measured yet")
    best = max(known, key=lambda gear: (known[gear].decode_tokens_per_s, -gear))
    acceptance = known[best].acceptance
    if best and 0 in choices and 0 not in known and (acceptance or 0.0) < _HOPELESS:
        return 0, Reason("gear", f"gear 0: {_share(acceptance)} of gear {best}'s drafts were taken")
    turn = drafting.turns.get(kind, 0)
    if turn % drafting.explore_every == drafting.explore_every - 1:
        tried = _explored(choices, best, set(of_kind), acceptance, turn // drafting.explore_every)
        return tried, Reason(
            "gear_explored", f"gear {tried} is tried beside {_figures(best, known[best])}"
        )
    text = _figures(best, known[best])
    others = [_figures(gear, known[gear]) for gear in choices if gear in known and gear != best]
    return best, Reason("gear", "; ".join([text, *others]))


def _explored(
    choices: tuple[int, ...], best: int, tried: set[int], acceptance: float | None, round_: int
) -> int:
    """Beside `best` what this kind has not tried, then 0, then one side after the other."""
    at = choices.index(best)
    deeper, shallower = choices[at + 1 : at + 2], choices[max(at - 1, 0) : at]
    promising = acceptance is None or acceptance >= _PROMISING
    beside = [*deeper, *shallower] if promising else [*shallower, *deeper]
    fresh = [gear for gear in (*beside, 0) if gear in choices and gear not in tried]
    if fresh or not beside:
        return fresh[0] if fresh else best
    return beside[round_ % len(beside)]


def _figures(gear: int, record: GearRecord) -> str:
    taken = f", {_share(record.acceptance)} taken" if record.acceptance is not None else ""
    return f"gear {gear} at {record.decode_tokens_per_s:.1f} tokens/s{taken}"


def _share(acceptance: float | None) -> str:
    return f"{100 * (acceptance or 0.0):.0f} %"
