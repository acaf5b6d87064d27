"""Whether an answer from a compressed prompt may go out: a pure function and what it stands on."""

from flashlane.verdict.check import Kept, Verdict, verdict

__all__ = ["Kept", "Verdict", "verdict"]
