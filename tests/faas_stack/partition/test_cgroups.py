"""Tests of control groups: finding the own ones, writing limits, and using real ones."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.own_cgroup import Group, Place, own_place
from carpool.process import leftovers
from faas_stack.partition import enter, machine
from faas_stack.partition.cgroup_limits import CgroupLimits, Unusable
from faas_stack.partition.cgroup_v1 import TreesV1
from faas_stack.partition.cgroup_v2 import TreeV2
from tests.waiting import HANG_S

SLEEPER = (sys.executable, "-S", "-c", "import signal; print(flush=True); signal.pause()")


def groups_v1() -> dict[str, Group]:
    """Return the writable groups of version 1 on this machine."""
    found = own_place().v1
    return {name: group for name, group in found.items() if os.access(group.folder, os.W_OK)}


needs_v1 = pytest.mark.skipif(
    set(groups_v1()) < {"cpu", "cpuset", "memory"}, reason="no writable cgroups of version 1"
)


def files(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's files by name."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


# -- where we are -------------------------------------------------------------------------------


def proc(folder: Path, mounts: list[str], own: str) -> Path:
    """Write these two files to ``folder`` as in ``/proc/self``, and return it."""
    lines = [f"{n} 1 0:{n} {line}" for n, line in enumerate(mounts)]
    (folder / "mountinfo").write_text("\n".join(lines) + "\n")
    (folder / "cgroup").write_text(own)
    return folder


def test_own_groups_of_both_versions(tmp_path: Path) -> None:
    """The own groups are found in the trees of version 1, which may be shared, and of version 2."""
    for name in ("cpu,cpuacct/svc", "memory/svc/a", "unified/svc"):
        (tmp_path / name).mkdir(parents=True)
    mounts = [
        f"/ {tmp_path}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        f"/ {tmp_path}/memory rw - cgroup cgroup rw,memory",
        f"/ {tmp_path}/unified rw - cgroup2 cgroup2 rw",
        "/ /proc rw - proc proc rw",
    ]
    own = "4:memory:/svc/a\n2:cpu,cpuacct:/svc\n1:name=systemd:/x\n0::/svc\n"
    place = own_place(proc(tmp_path, mounts, own))
    assert {
        "cpu": Group(tmp_path / "cpu,cpuacct/svc", tmp_path / "cpu,cpuacct"),
        "memory": Group(tmp_path / "memory/svc/a", tmp_path / "memory"),
    } == place.v1
    assert Group(tmp_path / "unified/svc", tmp_path / "unified") == place.v2


def test_own_group_is_found_in_container(tmp_path: Path) -> None:
    """If only a part of the tree is mounted, the group's path is relative to that part."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    mounts = [
        f"/docker/abc {tmp_path}/memory ro - cgroup cgroup rw,memory",
        f"/docker/other {tmp_path}/cpu ro - cgroup cgroup rw,cpu",
    ]
    place = own_place(proc(tmp_path, mounts, "4:memory:/docker/abc\n2:cpu:/docker/abc\n"))
    assert {"memory": Group(tmp_path / "memory", tmp_path / "memory")} == place.v1
    assert Place() == own_place(tmp_path / "nowhere")


def test_smallest_limit_of_parent_groups_is_capacity(tmp_path: Path) -> None:
    """The smallest quota and memory limit on the way up is the capacity for functions."""
    leaf = tmp_path / "a" / "b"
    leaf.mkdir(parents=True)
    group = Group(leaf, tmp_path)
    place = Place({"cpu": group, "memory": group})
    assert (math.inf, math.inf) == (place.cpu(), place.memory_bytes())
    for folder, quota_us, limit in ((leaf, -1, 2**63 - 4096), (tmp_path / "a", 50_000, 2**20)):
        (folder / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    assert (0.5, 2**20) == (place.cpu(), place.memory_bytes())
    (leaf / "cpu.max").write_text("25000 100000\n")
    (tmp_path / "a" / "cpu.max").write_text("max 100000\n")
    (leaf / "memory.max").write_text("max\n")
    assert (0.25, math.inf) == (Place({}, group).cpu(), Place({}, group).memory_bytes())
    there = machine.measured(place=place)
    assert (0.5, 2**20, sorted(os.sched_getaffinity(0))) == (
        *(there.cpu, there.memory_bytes),
        list(there.cores),
    )


def test_out_of_memory_kills_are_read(tmp_path: Path) -> None:
    """Out-of-memory kills are read in both versions, and are 0 if the kernel counts none."""
    for name in ("v1", "v2", "old"):
        (tmp_path / name).mkdir()
    v1, v2, old = (Group(tmp_path / name, tmp_path) for name in ("v1", "v2", "old"))
    (v1.folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    events = "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n"
    (v2.folder / "memory.events").write_text(events)
    (old.folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    assert (2, 3, 0, 0) == (
        Place({"memory": v1}).killed_for_memory(),
        Place({"cpu": v1}, v2).killed_for_memory(),
        Place({"memory": old}).killed_for_memory(),
        Place().killed_for_memory(),
    )


# -- what is written ----------------------------------------------------------------------------


def test_version_1_limits_each_resource_in_its_tree(tmp_path: Path) -> None:
    """In version 1, CPU, cores and memory are limited in a tree each."""
    for name in ("cpu", "cpuset", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-7\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0-1\n")
    place = Place({n: Group(tmp_path / n, tmp_path / n) for n in ("cpu", "cpuset", "memory")})
    trees = TreesV1(place, "ours")
    (tmp_path / "memory" / "ours" / "i").mkdir()
    (tmp_path / "memory" / "ours" / "i" / "memory.memsw.limit_in_bytes").touch()
    entries = trees.make("i", CgroupLimits(0.5, (1, 2, 5), 2**20))
    assert [tmp_path / n / "ours/i/cgroup.procs" for n in ("cpu", "cpuset", "memory")] == entries
    written = {n: files(tmp_path / n / "ours/i") for n in ("cpu", "cpuset", "memory")}
    assert {
        "cpu": {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "5000"},
        "cpuset": {"cpuset.cpus": "1-2,5", "cpuset.mems": "0-1\n"},
        "memory": {
            "memory.limit_in_bytes": str(2**20),
            "memory.memsw.limit_in_bytes": str(2**20),
        },
    } == written
    trees.make("free", CgroupLimits())
    assert "-1" == files(tmp_path / "cpu/ours/free")["cpu.cfs_quota_us"]
    assert "0-7\n" == files(tmp_path / "cpuset/ours/free")["cpuset.cpus"]
    assert {} == files(tmp_path / "memory/ours/free")


@pytest.mark.parametrize(
    ("cpu", "quota_us", "period_us"),
    [
        (None, None, 10_000),
        (0.25, 2500, 10_000),
        (0.1, 1000, 10_000),
        (0.05, 5000, 100_000),
        (0.001, 1000, 100_000),
        (1.5, 15_000, 10_000),
    ],
)
def test_periods_are_short(cpu: float | None, quota_us: int | None, period_us: int) -> None:
    """Periods are short, to throttle for milliseconds, but allow the kernel's minimum quota."""
    limits = CgroupLimits(cpu)
    assert (quota_us, period_us) == (limits.quota_us, limits.period_us)


def test_version_2_has_one_folder_per_instance(tmp_path: Path) -> None:
    """In version 2, an instance has one folder, and controllers are enabled on two levels."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu cpuset memory\n")
    handed_down = tmp_path / "ours" / "cgroup.subtree_control"
    tree = TreeV2(Place({}, Group(tmp_path, tmp_path)), "ours")
    assert "+cpu +cpuset +memory" == handed_down.read_text()
    (entry,) = tree.make("i", CgroupLimits(1.5, (0, 1), 2**30))
    assert tmp_path / "ours/i/cgroup.procs" == entry
    expected = {"cpu.max": "15000 10000", "cpuset.cpus": "0-1", "memory.max": str(2**30)}
    assert expected == files(tmp_path / "ours/i")
    tree.make("free", CgroupLimits())
    expected = {"cpu.max": "max 10000", "cpuset.cpus": "\n"}
    assert expected == files(tmp_path / "ours/free")


@pytest.mark.parametrize(
    ("controllers", "why"), [("", "has none of the controllers"), ("io pids", "has none of")]
)
def test_version_2_without_controllers_is_refused(
    tmp_path: Path, controllers: str, why: str
) -> None:
    """Version 2 without usable controllers is refused with the reason."""
    (tmp_path / "cgroup.controllers").write_text(controllers)
    with pytest.raises(Unusable, match=why):
        TreeV2(Place({}, Group(tmp_path, tmp_path)), "ours")
    assert ["cgroup.controllers"] == [path.name for path in tmp_path.iterdir()]
    with pytest.raises(Unusable, match="version 2 are not mounted"):
        TreeV2(Place(), "ours")


def test_provider_moves_only_itself_out_of_its_group(tmp_path: Path) -> None:
    """The provider moves only itself out of its group, and moves back at its end.

    If the group has other processes, the error says what to do instead.
    """
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset memory\n")
    tree = TreeV2(Place({}, Group(tmp_path, tmp_path)), "ours")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    with pytest.raises(Unusable, match=r"processes of others, such as 1; .* systemd-run --scope"):
        tree._move_out()
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    tree._move_out()
    assert str(os.getpid()) == (tmp_path / "ours/provider/cgroup.procs").read_text()
    tree.close()
    assert str(os.getpid()) == (tmp_path / "cgroup.procs").read_text()


# -- real groups --------------------------------------------------------------------------------


@needs_v1
def test_real_group_limits_and_kills_its_processes() -> None:
    """A process that enters a group has its limits in all trees and is killed with the group."""
    trees = TreesV1(Place(groups_v1()), f"test-carpool-{os.getpid()}")
    try:
        core = max(os.sched_getaffinity(0))
        entries = trees.make("i", CgroupLimits(0.5, (core,), 64 * 2**20))
        process = subprocess.Popen(enter.command(SLEEPER, entries), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        own = Path(f"/proc/{process.pid}/cgroup").read_text()
        assert 3 == own.count(f"/test-carpool-{os.getpid()}/i\n")
        assert {core} == os.sched_getaffinity(process.pid)
        folder = trees.folders["memory"] / "i"
        assert str(64 * 2**20) == (folder / "memory.limit_in_bytes").read_text().strip()
        assert trees.make("i", CgroupLimits(0.5, (core,), 64 * 2**20)) == entries  # the next life
        trees.kill("i")
        assert -9 == process.wait()
        assert trees.remove("i")
        process.stdout.close()
    finally:
        for root in trees.roots:
            leftovers.remove_group(str(root))
    assert [] == [root for root in trees.roots if root.exists()]


def writable_v2() -> Path | None:
    """Return the own group of version 2, or None if no groups can be made in it."""
    group = own_place().v2
    return group.folder if group and os.access(group.folder, os.W_OK) else None


needs_v2 = pytest.mark.skipif(writable_v2() is None, reason="no writable cgroups of version 2")


@needs_v2
def test_keeper_does_not_remove_its_own_group(tmp_path: Path) -> None:
    """A keeper keeps the group it runs in, which the next provider removes."""
    group = (writable_v2() or tmp_path) / f"test-carpool-{os.getpid()}"
    for name in ("provider", "fn-1"):
        (group / name).mkdir(parents=True)
    (tmp_path / "run").mkdir()
    keeper = (sys.executable, "-I", "-S", leftovers.__file__, str(tmp_path / "run"), str(group))
    home = group / "provider" / "cgroup.procs"
    process = subprocess.Popen(enter.command(keeper, [home]), stdin=subprocess.PIPE)
    process.communicate(timeout=HANG_S)
    assert (0, ["provider"]) == (process.returncode, [path.name for path in group.glob("*/")])
    assert leftovers.remove_group(str(group))
    assert not group.exists()


@needs_v2
def test_real_version_2_group_is_entered_and_removed() -> None:
    """A group of version 2 is entered, killed and removed even without controllers."""
    group = (writable_v2() or Path()) / f"test-carpool-{os.getpid()}"
    group.mkdir()
    command = enter.command(SLEEPER, [group / "cgroup.procs"])
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert f"{group.name}\n" in Path(f"/proc/{process.pid}/cgroup").read_text()
    leftovers.end_group(str(group))
    assert -9 == process.wait()
    process.stdout.close()
    assert leftovers.remove_group(str(group))
    assert not group.exists()


def test_process_that_cannot_enter_group_is_not_started(tmp_path: Path) -> None:
    """A process that cannot enter its group is not started and says why."""
    command = enter.command(["true"], [tmp_path / "gone" / "cgroup.procs"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 125 == done.returncode
    assert "carpool: cannot enter the partition" in done.stderr
    assert ("true",) == enter.command(["true"])
