"""Tests of partitions with real processes: cores that change, threads, and notes on limits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from carpool.own_cgroup import Place, own_place
from carpool.process import leftovers
from faas_stack.partition.allocation import NoCapacity
from faas_stack.partition.machine import Capacity
from faas_stack.partition.partitions import Partition, Partitions, confine
from faas_stack.partition.resources import Resources, thread_variables
from tests.docs.snippets import take_one
from tests.faas_stack.partition.test_cgroups import SLEEPER, needs_v1
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("control groups")  # whose next provider clears them away

NOTE, GRANTED = (
    take_one("docs/partition.md", first) for first in ("^partitions: ", "^carpool: 0.5 core")
)
CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
MACHINE = Capacity(CORES, len(CORES), 2**33)
HALF = Resources(cpu=0.5, memory_bytes=2**26)
WHOLE = Resources(cpu=1.0, pinned=True)

needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core")


class Running:
    """An instance's process in its partition."""

    def __init__(self, partitions: Partitions, name: str, each: Resources) -> None:
        self.partition: Partition = partitions.of(name, each, lambda: [self.process.pid])
        argv, env = self.partition.enter(SLEEPER)
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **env})
        assert self.process.stdout is not None
        self.process.stdout.readline()

    @property
    def cores(self) -> tuple[int, ...]:
        """Cores on which the kernel lets the process run."""
        return tuple(sorted(os.sched_getaffinity(self.process.pid)))

    def end(self) -> None:
        """Kill the process and leave the partition."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        uvloop.run(self.partition.leave())


@pytest.fixture(params=["cgroups", "affinity"])
def partitions(request: pytest.FixtureRequest) -> Iterator[Partitions]:
    """Partitions of a provider in this process, with control groups and without."""
    place = own_place() if request.param == "cgroups" else Place()
    made = Partitions.open(named("test"), MACHINE, place=place)
    if request.param == "cgroups" and not made.has("cpuset"):
        pytest.skip("no writable cgroups")
    yield made
    for group in made.groups:
        leftovers.remove_group(group)
    made.close()


@needs_two_cores
def test_other_instances_leave_pinned_core(partitions: Partitions) -> None:
    """Running instances move off a core that another one pins, and back when it is free again."""
    free = Running(partitions, "free", Resources())
    half = Running(partitions, "half", HALF)
    assert [CORES, CORES] == [free.cores, half.cores]
    whole = Running(partitions, "whole", WHOLE)
    assert [CORES[1:], CORES[:1], CORES[:1]] == [whole.cores, half.cores, free.cores]
    late = Running(partitions, "late", Resources())
    assert CORES[:1] == late.cores
    with pytest.raises(NoCapacity, match="waits for 1 core, held by half, whole"):
        partitions.of("second", WHOLE, list).enter(SLEEPER)
    whole.end()
    assert [CORES, CORES, CORES] == [free.cores, half.cores, late.cores]
    for one in (free, half, late):
        one.end()


@needs_two_cores
def test_instance_without_limits_uses_all_cores_if_all_are_pinned(partitions: Partitions) -> None:
    """An instance without limits may use all cores if all of them are pinned."""
    pair = [Running(partitions, f"i{number}", WHOLE) for number in range(2)]
    free = Running(partitions, "free", Resources())
    assert {CORES[:1], CORES[1:]} == {one.cores for one in pair}
    assert CORES == free.cores
    for one in (*pair, free):
        one.end()


def shape(text: str) -> str:
    """Return a line without its numbers and their units."""
    return re.sub(r"[\d.]+(-\d+| cores?| [GM]iB)?", "N", text.strip())


def test_note_says_which_limits_are_enforced(partitions: Partitions) -> None:
    """The note at the start and each instance's partition say which limits are enforced."""
    half = Running(partitions, "half", HALF)
    many = f"on {CORES[0]}-{CORES[1]}" if len(CORES) > 1 else f"on {CORES[0]}"
    if partitions.tree:
        assert partitions.note.endswith(f"by {partitions.tree.version} (cpu, cpuset, memory)")
        said = f"0.5 core by quota, {many}; 64 MiB ({partitions.tree.version})"
        assert shape(NOTE) == shape(f"partitions: {partitions.note}")
        assert shape(GRANTED) == shape(f"carpool: {half.partition}")
    else:
        assert (
            "affinity and thread counts only, quotas and memory limits are not enforced"
            in partitions.note
        )
        weak = "64 MiB requested, but not enforced (no cgroups)"
        said = f"0.5 core by 1 thread alone, no quota, {many}; {weak}"
    assert said == str(half.partition)
    half.end()


def test_partitions_off_refuses_and_moves_nothing() -> None:
    """With partitions off, no instance is refused or moved, and the note says so."""
    off = Partitions.off()
    assert (SLEEPER, {}) == off.of("i", Resources(cpu=64.0), list).enter(SLEEPER)
    assert (0, "off: only thread counts are limited") == (len(off.groups), off.note)


AS_NOBODY = """
import sys
sys.path.insert(0, sys.argv[1])
from faas_stack.partition.machine import measured
from faas_stack.partition.partitions import Partitions
print(Partitions.open("carpool-nobody", measured()).note)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_unprivileged_user_is_told_what_is_not_enforced() -> None:
    """Without permission to make groups, the provider starts and says what is not enforced."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no system Python, which an ordinary user may run")
    command = [python, "-c", AS_NOBODY, str(Path(__file__).parents[3])]
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **nobody)
    if "Permission denied" in done.stderr or "Syntax" in done.stderr:
        pytest.skip("an ordinary user may not read this folder, or its Python is too old")
    assert (
        "affinity and thread counts only, quotas and memory limits are not enforced ("
        in done.stdout
    )
    assert "Permission denied)" in done.stdout or "is mounted" in done.stdout


@needs_v1
def test_next_provider_removes_unlocked_groups() -> None:
    """The next provider removes a dead provider's groups with their processes, and no others."""
    living, dead = (Partitions.open(named(kind), MACHINE) for kind in ("live", "dead"))
    not_ours = Path(living.groups[0]).with_name(f"{named('live')}.slice")
    not_ours.mkdir()
    try:
        orphan = Running(dead, "orphan", HALF)
        assert len(dead.groups) == len(dead._locks)
        for lock in dead._locks:
            os.close(lock)  # as the kernel does when its process is gone
        program = "from tests.faas_stack.partition.test_partitions import start; start()"
        other = subprocess.Popen([sys.executable, "-c", program])

        def ended() -> bool:
            orphan.process.poll()  # a group can be removed when its process is reaped
            return other.poll() is not None

        wait_until(ended, what="the end of the next provider")
        assert (0, -9) == (other.returncode, orphan.process.wait())
        assert orphan.process.stdout is not None
        orphan.process.stdout.close()
        assert [] == [group for group in dead.groups if os.path.exists(group)]  # noqa: PTH110
        assert all(os.path.exists(group) for group in living.groups)  # noqa: PTH110
        assert not_ours.exists()
    finally:
        for group in (*living.groups, *dead.groups, str(not_ours)):
            leftovers.remove_group(group)
        living.close()


def start() -> None:
    """Open and close partitions, as the next provider does first."""
    Partitions.open(named("next"), MACHINE).close()


def named(kind: str) -> str:
    """Return a name like that of a provider's temporary folder, unique to this process."""
    return f"carpool-{kind}{os.getpid() % 10**4:04}"


# -- threads and affinity -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (Resources(), None),
        (Resources(memory_bytes=2**30), None),
        (Resources(cpu=0.5), ("1", "0.5")),
        (Resources(cpu=1.9), ("1", "1.9")),
        (Resources(cpu=2.0), ("2", "2")),
        (Resources(cpu=2.6, pinned=True), ("3", "3")),
    ],
)
def test_threads_match_the_cores(each: Resources, expected: tuple[str, str] | None) -> None:
    """Thread pools have as many threads as whole cores, and at least one."""
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    env = {**dict.fromkeys(pools, expected[0]), "carpool_cpu": expected[1]} if expected else {}
    assert env == thread_variables(each)


def test_every_thread_is_confined() -> None:
    """All threads of a running process are confined, and missing processes are ignored."""
    code = (
        "import threading, signal; threading.Thread(target=signal.pause, daemon=True).start();"
        "print(flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    confine([process.pid, 2**22 + 1], CORES[-1:])
    threads_of = [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]  # noqa: PTH208
    assert 2 == len(threads_of)
    assert {CORES[-1:]} == {tuple(os.sched_getaffinity(thread)) for thread in threads_of}
    process.kill()
    process.wait()
    process.stdout.close()
