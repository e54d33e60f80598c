"""Which devices a CUDA program sees, and how it numbers them.

CUDA numbers the cards by itself, by default the fastest first, and `CUDA_VISIBLE_DEVICES` chooses among *its* numbers;
NVML numbers all cards in PCI order and ignores the variable. The two meet in the UUID.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Device Enumeration";
for spellings those leave open, `torch.cuda._parse_visible_devices` and `_transform_uuid_to_ordinals` (torch 2.13).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_tui.hardware.machine import GPU
from grpo_tui.inert import one_line


@dataclass(frozen=True)
class Seen:
    """The outcome: all devices with `visible` and `cuda_index` set, and what the user should know about it."""

    gpus: tuple[GPU, ...]
    notes: tuple[str, ...]


def see(gpus: Sequence[GPU], environ: Mapping[str, str]) -> Seen:
    """`gpus` (in PCI order, the slices of a card where the card stands) as CUDA programs in `environ` see them."""
    cards = _cards(gpus)
    pci_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    order = cards if pci_order else _fastest_first(cards)
    value = environ.get("CUDA_VISIBLE_DEVICES")
    notes: list[str] = []
    chosen = _slice_or_card(order) if value is None else _chosen(value, order, notes)
    if any(gpu.mig for gpu in chosen) and len(chosen) > 1:
        first = next(gpu for gpu in chosen if gpu.mig)
        notes.append(f"A CUDA program sees one MIG slice and no other device beside it: here {first.uuid}.")
        chosen = [first]
    if value is not None and not pci_order and value and not _kind(value) and _differ(cards):
        notes.extend(_order_notes(value, chosen, _chosen(value, cards, [])))
    numbers = {gpu.uuid: number for number, gpu in enumerate(chosen)}
    seen = tuple(replace(gpu, visible=gpu.uuid in numbers, cuda_index=numbers.get(gpu.uuid)) for gpu in gpus)
    return Seen(seen, tuple(notes))


_Card = tuple[GPU, ...]
"""A physical card as CUDA can show it: itself, or its MIG slices."""


def _cards(gpus: Sequence[GPU]) -> list[_Card]:
    cards: dict[str, list[GPU]] = {}
    for gpu in gpus:
        cards.setdefault(gpu.parent_uuid or gpu.uuid, []).append(gpu)
    return [tuple(card) for card in cards.values()]


def _fastest_first(cards: Sequence[_Card]) -> list[_Card]:
    """The order of FASTEST_FIRST as far as it can be foretold: CUDA's measure is not published.

    Cores × clock where the driver tells both for every card, else the newer architecture, then the larger memory.
    Equal cards keep their PCI order.
    """
    if all(card[0].speed is not None for card in cards):
        return sorted(cards, key=lambda card: -(card[0].speed or 0))
    return sorted(cards, key=lambda card: (card[0].capability or (0, 0), card[0].total_bytes or 0), reverse=True)


def _differ(cards: Sequence[_Card]) -> bool:
    return len({card[0].parent or card[0].name for card in cards}) > 1


def _kind(value: str) -> str:
    """How a list, or one entry of it, names devices: `GPU-` or `MIG-` by UUID, or empty: by number."""
    return value[:4] if value.startswith(("GPU-", "MIG-")) else ""


def _slice_or_card(cards: Sequence[_Card]) -> list[GPU]:
    """One device per card: the card itself, or its first slice."""
    return [card[0] for card in cards]


def _chosen(value: str, cards: Sequence[_Card], notes: list[str]) -> list[GPU]:
    """The devices that `CUDA_VISIBLE_DEVICES=value` names, in its order.

    The first entry that names no device ends the list; a device named twice empties it (both as CUDA does).
    """
    chosen: list[GPU] = []
    spelt = f"CUDA_VISIBLE_DEVICES={one_line(value, 60)}"
    kind = _kind(value)  # a list holds entries of one kind: that of its first
    for entry in value.split(",") if value.strip() else ():
        gpu = _named(entry, cards) if _kind(entry) == kind else None
        if gpu is None:
            if entry.strip() not in _NONE:
                notes.append(f'{spelt}: "{one_line(entry, 48)}" names no device here, and CUDA stops reading there.')
            break
        if gpu in chosen:
            notes.append(f"{spelt} names a device twice, so CUDA shows none.")
            return []
        chosen.append(gpu)
    return chosen


_NONE = frozenset({"-1", "NoDevFiles", "none", "void"})
"""What schedulers and people write when no device shall be seen; CUDA reads them as invalid, to the same effect."""

_LEGACY_MIG = re.compile(r"MIG-(?P<card>GPU-[^/]+)/(?P<gpu_instance>\d+)/(?P<compute_instance>\d+)")
"""How drivers before R470 name a slice."""


def _named(entry: str, cards: Sequence[_Card]) -> GPU | None:
    """The device one entry means: a number, a UUID, or the beginning of one UUID only."""
    devices = [gpu for card in cards for gpu in card]
    if legacy := _LEGACY_MIG.fullmatch(entry):
        instance = (int(legacy["gpu_instance"]), int(legacy["compute_instance"]))
        matches = [gpu for gpu in devices if gpu.parent_uuid.startswith(legacy["card"]) and gpu.instance == instance]
    elif entry.startswith("MIG-"):
        matches = [gpu for gpu in devices if gpu.uuid.startswith(entry)]
    elif entry.startswith("GPU-"):
        matches = [card[0] for card in cards if (card[0].parent_uuid or card[0].uuid).startswith(entry)]
    else:
        # CUDA reads the number that the entry begins with, so that "1gpu" is 1.
        number = re.match(r"\s*\+?([0-9]{1,9})", entry)
        matches = [card[0] for card in cards[int(number[1]) : int(number[1]) + 1]] if number else []
    return matches[0] if len(matches) == 1 else None


def _order_notes(value: str, chosen: Sequence[GPU], by_pci: Sequence[GPU]) -> list[str]:
    names = ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in chosen) or "nothing"
    note = f"What CUDA_VISIBLE_DEVICES={one_line(value, 60)} means depends on CUDA_DEVICE_ORDER."
    if list(chosen) == list(by_pci):
        return [f"{note} Either order picks {names} here."]
    other = ", ".join(gpu.name for gpu in by_pci) or "nothing"
    slower = len(chosen) == len(by_pci) and all(
        _fastest_first([(mine,), (theirs,)])[0][0] == theirs for mine, theirs in zip(chosen, by_pci, strict=True)
    )
    return [
        f"{note} CUDA numbers the fastest card first unless it is PCI_BUS_ID, so that it picks "
        f"{'the slower card, ' if slower else ''}{names}; in PCI order, which nvidia-smi shows, it would be {other}. "
        "Set CUDA_DEVICE_ORDER=PCI_BUS_ID and name cards by UUID."
    ]
