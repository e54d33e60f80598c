"""What is made of a reading: bf16 or not, which cards go together, and how a choice is kept from drifting."""

from dataclasses import replace

import pytest

from grpo_tui.hardware.machine import (
    GPU,
    Machine,
    fingerprint,
    format_gib,
    smallest,
    suggested,
    supports_bf16,
    uneven_note,
    visible_environment,
)

GIB = 2**30
H200 = GPU(index=0, uuid="GPU-1", name="H200", total_bytes=141 * GIB, capability=(9, 0), cuda_index=0)
SMALL = GPU(index=1, uuid="GPU-2", name="GTX 1650", total_bytes=4 * GIB, capability=(7, 5), cuda_index=1)
TWIN = replace(H200, index=2, uuid="GPU-3", cuda_index=2)
SLICE = replace(H200, index=None, uuid="MIG-1", mig=True)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((7, 0), False), ((7, 5), False), ((8, 0), True), ((8, 9), True), ((12, 1), True), (None, None)],
)
def test_bf16_is_decided_by_the_capability(capability: tuple[int, int] | None, expected: bool | None) -> None:
    assert supports_bf16(replace(H200, capability=capability)) is expected


def test_the_smallest_card_sets_the_budget_and_that_is_said() -> None:
    assert smallest([H200, SMALL, TWIN]) == SMALL
    assert "GTX 1650 with 4.0 GiB" in uneven_note([H200, SMALL])
    assert uneven_note([H200, TWIN]) == ""
    assert uneven_note([H200, replace(TWIN, total_bytes=140 * GIB)]) == ""
    assert uneven_note([]) == ""


def test_unknown_memory_is_no_smallest_card() -> None:
    assert smallest([replace(H200, total_bytes=None)]) is None
    assert uneven_note([H200, replace(SMALL, total_bytes=None)]) == ""


def test_the_cards_proposed_are_the_first_and_its_equals() -> None:
    assert suggested(Machine(gpus=(H200, SMALL, TWIN))) == (H200, TWIN)
    assert suggested(Machine(gpus=(replace(H200, visible=False), SMALL))) == (SMALL,)
    assert suggested(Machine()) == ()


def test_a_choice_is_handed_down_by_uuid_with_the_order_fixed() -> None:
    assert visible_environment([TWIN, H200]) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-3,GPU-1",
    }


def test_no_choice_hides_every_gpu() -> None:
    assert visible_environment([]) == {"CUDA_VISIBLE_DEVICES": ""}


def test_of_slices_one_is_handed_down() -> None:
    environment = visible_environment([H200, SLICE, replace(SLICE, uuid="MIG-2")])
    assert environment["CUDA_VISIBLE_DEVICES"] == "MIG-1"


@pytest.mark.parametrize(
    ("uuids", "expected"),
    [
        (("rocm:1", "rocm:0"), {"HIP_VISIBLE_DEVICES": "1,0"}),
        (("cuda:0",), {"CUDA_VISIBLE_DEVICES": "0"}),
        (("mps:0",), {}),
    ],
)
def test_devices_that_only_torch_sees_are_handed_down_by_number(
    uuids: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert visible_environment([replace(H200, uuid=uuid) for uuid in uuids]) == expected


def test_the_mark_of_a_choice_changes_with_the_cards_and_not_with_what_they_do() -> None:
    machine = Machine(gpus=(H200, SMALL))
    mark = fingerprint(machine, ["GPU-1"])
    assert mark == fingerprint(Machine(gpus=(replace(H200, free_bytes=1, temperature=80),)), ["GPU-1"])
    assert mark == fingerprint(Machine(gpus=(replace(H200, total_bytes=141 * GIB + 2**20),)), ["GPU-1"])
    others = [
        fingerprint(machine, ["GPU-2"]),
        fingerprint(machine, ["GPU-1", "GPU-2"]),
        fingerprint(Machine(gpus=(SMALL,)), ["GPU-1"]),
        fingerprint(Machine(gpus=(replace(H200, total_bytes=80 * GIB),)), ["GPU-1"]),
        fingerprint(machine, []),
    ]
    assert len({mark, *others}) == 6


def test_unknown_sizes_read_unknown() -> None:
    assert format_gib(None) == "unknown"
    assert format_gib(3 * GIB // 2) == "1.5 GiB"
