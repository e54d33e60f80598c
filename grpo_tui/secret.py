"""What must not be written down or handed on: names that hold secrets by custom, and values that show one."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A name that holds a secret by the custom of clouds and registries. TOKENIZERS_PARALLELISM must not match.
_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH|NETRC|COOKIE)"
    r"(?:$|_)|_(?:KEY|PAT)$",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")  # https://user:password@host
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}\b")  # as huggingface.co makes them

HIDDEN = "(not shown)"

# Names of token ids and of strategies, which are no secrets.
_HARMLESS = re.compile(
    r"(?:^|_)(?:(?:pad|eos|bos|unk|mask|image)_token(?:_id)?|token_(?:id|truncate|mask|type))", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    return bool(_NAME.search(name)) and not _HARMLESS.search(name)


def shows_secret(value: str) -> bool:
    """Whether a text has a login or a token in it."""
    return bool(_LOGIN.search(value) or _TOKEN.search(value))


def scrubbed(value: Any) -> Any:
    """`value` without secrets, however deep: those under a secret name are left out, those in a text are hidden."""
    if isinstance(value, Mapping):
        return {name: scrubbed(item) for name, item in value.items() if not is_secret(str(name))}
    if isinstance(value, list | tuple):
        return type(value)(map(scrubbed, value)) if type(value) in (list, tuple) else [scrubbed(item) for item in value]
    if isinstance(value, str):
        return _TOKEN.sub(HIDDEN, _LOGIN.sub(HIDDEN, value))
    return value


def blank_environment() -> None:
    """Blank the secrets in what `/proc/PID/environ` shows of this process; its own `os.environ` keeps them.

    Linux shows there, to every process of the user, the memory in which the variables were handed over at the start
    (proc(5)); a variable that is set anew gets memory elsewhere. Call it before anything holds on to the old one. Who
    may debug this process can still search its memory.
    """
    names = [name for name, value in os.environ.items() if is_secret(name) or shows_secret(value)]
    if sys.platform != "linux" or not names:
        return
    import ctypes

    start, end = map(int, Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[47:49])  # env_start, env_end
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    for name in names:
        at, value = getenv(os.fsencode(name)), os.environ[name]
        if at and start <= at < end:
            os.environ[name] = value
            ctypes.memset(at, 0, len(os.fsencode(value)))
