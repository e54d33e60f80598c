"""Rows without an answer, where they are kept: rewards that compare with it are not asked about them.

TRL passes over a reward that is None; an exact-match reward that got None for the right answer would pay 0, or raise.
The text is what train.py holds, and what scoring runs.
"""

from collections.abc import Callable, Mapping
from typing import Any

IMPORTS = "from functools import wraps\nfrom inspect import iscoroutinefunction, signature\n"

CODE = '''\
def only_answered(function):
    """The reward, asked about rows that have an answer; for the others it gives None, which TRL passes over."""
    taken = signature(function).parameters.get("answer")
    if taken is None or taken.default is not taken.empty:
        return function  # it does without

    def narrowed(given):
        """The arguments for the rows with an answer, and what spreads a list for these over all rows."""
        answers = given.get("answer") or []
        count = len(answers)
        if None not in answers:
            return given, lambda values: values
        places = [place for place, answer in enumerate(answers) if answer is not None]

        def spread(values):
            if isinstance(values, dict) or not hasattr(values, "__iter__"):
                return values  # no rewards: the trainer says what is wrong
            values = list(values)
            by_place = dict(zip(places, values))
            return [by_place.get(place) for place in range(count)] if len(values) == len(places) else values

        asked = {
            name: [value[place] for place in places] if isinstance(value, list) and len(value) == count else value
            for name, value in given.items()
        }
        if log_extra := given.get("log_extra"):
            asked["log_extra"] = lambda column, values: log_extra(column, spread(values))
        return asked, spread

    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "func", function).__call__):

        @wraps(function)
        async def reward(**given):
            asked, spread = narrowed(given)
            return spread(await function(**asked) if asked["completions"] else [])
    else:

        @wraps(function)
        def reward(**given):
            asked, spread = narrowed(given)
            return spread(function(**asked) if asked["completions"] else [])

    return reward
'''


def may_be_missing(column: str, faults: Mapping[str, str]) -> bool:
    """Can a row come to training whose `answer` is None? By choice, or because no `column` was named as the answer."""
    return not column or "keep" in (faults.get("missing_answer"), faults.get("unparsable"))


def only_answered(function: Callable[..., Any]) -> Callable[..., Any]:
    """`only_answered` as CODE defines it: the function itself where it does not require an `answer`."""
    made: Callable[..., Any] = _NAMESPACE["only_answered"](function)
    return made


_NAMESPACE: dict[str, Any] = {}
exec(compile(IMPORTS + CODE, "<answered>", "exec"), _NAMESPACE)
