"""`CUDA_VISIBLE_DEVICES` in every spelling means here what it means to CUDA."""

import pytest

from grpo_tui.hardware.machine import GPU
from grpo_tui.hardware.visible import see

UUIDS = ("GPU-a1000000", "GPU-a2000000", "GPU-b3000000")
CARDS = tuple(
    GPU(index=number, uuid=uuid, name="H200", capability=(9, 0), total_bytes=141 * 2**30)
    for number, uuid in enumerate(UUIDS)
)
SLICES = tuple(
    GPU(index=None, uuid=f"MIG-{number}0000", name="slice", mig=True, parent="A100", parent_uuid="GPU-c4000000",
        instance=(number + 1, 0))
    for number in range(2)
)  # fmt: skip


def seen(gpus: tuple[GPU, ...], value: str | None, order: str | None = None) -> list[str]:
    environ = {
        name: text for name, text in (("CUDA_VISIBLE_DEVICES", value), ("CUDA_DEVICE_ORDER", order)) if text is not None
    }
    result = see(gpus, environ).gpus
    assert [gpu.uuid for gpu in result] == [gpu.uuid for gpu in gpus]
    visible = sorted((gpu.cuda_index, gpu.uuid) for gpu in result if gpu.visible and gpu.cuda_index is not None)
    assert [number for number, _ in visible] == list(range(sum(gpu.visible for gpu in result)))
    return [uuid for _, uuid in visible]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("+1", [1]),
        ("1gpu2,2ampere", [1, 2]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("none", []),
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("0,x,1", [0]),
        ("0,,1", [0]),
        ("9999999999999999999999", []),
        ("٣", []),
        ("0,1,0", []),
        ("0,GPU-b", [0]),
        ("GPU-a1000000", [0]),
        ("GPU-b3000000,GPU-a1000000", [2, 0]),
        ("GPU-b", [2]),
        ("GPU-a", []),
        ("GPU-b,GPU-a,GPU-a1", [2]),
        ("GPU-b,GPU-b3", []),
        ("GPU-b,0", [2]),
        ("GPU-b,nothing", [2]),
        ("gpu-b", []),
        ("MIG-nothing", []),
    ],
)
def test_a_spelling_shows_the_cards_that_cuda_shows(value: str | None, expected: list[int]) -> None:
    assert seen(CARDS, value) == [UUIDS[number] for number in expected]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MIG-00000", ["MIG-00000"]),
        ("MIG-1", ["MIG-10000"]),
        ("MIG-GPU-c4000000/2/0", ["MIG-10000"]),
        ("MIG-GPU-c4000000/9/0", []),
        ("MIG-", []),
        ("0", ["MIG-00000"]),
        ("GPU-c4", ["MIG-00000"]),
        (None, ["MIG-00000"]),
    ],
)
def test_a_slice_is_found_under_all_its_names(value: str | None, expected: list[str]) -> None:
    assert seen(SLICES, value) == expected


def test_beside_a_slice_no_other_card_is_seen() -> None:
    result = see((*CARDS, *SLICES), {"CUDA_VISIBLE_DEVICES": "3,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [gpu.uuid for gpu in result.gpus if gpu.visible] == ["MIG-00000"]
    assert "one MIG slice" in result.notes[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [("0,7", '"7" names no device'), ("0,0", "names a device twice"), ("GPU-a", "names no device")],
)
def test_a_list_that_cuda_does_not_take_as_meant_is_explained(value: str, words: str) -> None:
    (note,) = see(CARDS, {"CUDA_VISIBLE_DEVICES": value}).notes
    assert words in note


@pytest.mark.parametrize("value", [None, "", "-1", "NoDevFiles", "0,1", "GPU-b"])
def test_a_list_that_means_what_it_says_needs_no_words(value: str | None) -> None:
    assert see(CARDS, {} if value is None else {"CUDA_VISIBLE_DEVICES": value}).notes == ()


def mixed(**speeds: float) -> tuple[GPU, ...]:
    """Two unlike cards, in PCI order: the older one, with more memory, first."""
    return tuple(
        GPU(
            index=number, uuid=f"GPU-{name}", name=name, capability=capability, total_bytes=size, speed=speeds.get(name)
        )
        for number, (name, capability, size) in enumerate((("old", (7, 0), 32), ("new", (8, 9), 24)))
    )


def test_cuda_numbers_the_faster_card_first_unless_told_to_go_by_the_bus() -> None:
    assert seen(mixed(), None) == ["GPU-new", "GPU-old"]
    assert seen(mixed(), None, "FASTEST_FIRST") == ["GPU-new", "GPU-old"]
    assert seen(mixed(), None, "PCI_BUS_ID") == ["GPU-old", "GPU-new"]


def test_cores_and_clock_tell_the_faster_card_where_they_are_known() -> None:
    assert seen(mixed(old=9.0, new=5.0), None) == ["GPU-old", "GPU-new"]
    assert seen(mixed(old=9.0), None) == ["GPU-new", "GPU-old"]


def test_a_number_that_either_order_reads_alike_is_said_to_be_so() -> None:
    (note,) = see(mixed(old=9.0, new=5.0), {"CUDA_VISIBLE_DEVICES": "0"}).notes
    assert "Either order picks old" in note


def test_names_need_no_order() -> None:
    assert see(mixed(), {"CUDA_VISIBLE_DEVICES": "GPU-old"}).notes == ()
