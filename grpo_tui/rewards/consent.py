"""Whether scoring needs the user's yes: reward functions on their own data, or code that is not ours."""

import hashlib

from grpo_tui.draft import Approval, Draft


def score_fingerprint(code: bytes, data: str) -> str:
    """SHA-256 of what a yes to scoring is given for: the rewards file and the fingerprint of the data."""
    return hashlib.sha256(hashlib.sha256(code).digest() + data.encode()).hexdigest()


def approval_needed(draft: Draft, code: bytes, data: str, *, our_code: bool, own_data: bool) -> str | None:
    """The fingerprint that a yes is still needed for, or None.

    `our_code`: the file is a shipped recipe's or our catalogue's, and unedited. `own_data`: rows of the user's data are
    used; samples written by hand, and a shipped recipe's data, are not that.
    """
    if our_code and not own_data:
        return None
    fingerprint = score_fingerprint(code, data)
    given = any(each.what == "score" and each.sha256 == fingerprint for each in draft.approvals)
    return None if given else fingerprint


def approve_score(fingerprint: str, at: str, detail: str) -> Approval:
    """The yes, as the draft keeps it. `at` is ISO 8601 in UTC; `detail` names file and data for people."""
    return Approval(what="score", at=at, sha256=fingerprint, detail=detail)
