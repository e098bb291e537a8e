"""Free memory is returned to the system after a peak, and only then."""

from __future__ import annotations

import subprocess
import sys

from carpool.memory import Trimmer, resident_bytes

MIB = 1024 * 1024

PEAK = """
from carpool.memory import Trimmer, resident_bytes
trimmer = Trimmer()
before = resident_bytes()
peak = [b"x" * 100_000 for _ in range(2000)]
kept = peak[-1]  # the end of the heap stays in use
among = resident_bytes()
del peak
for _ in range(2):
    trimmer.look(0)
print(before, among, resident_bytes())
"""


class Process:
    """A process's memory, as set by a test."""

    def __init__(self) -> None:
        self.mib, self.free_mib, self.trims = 100, 0, 0

    def resident(self) -> int:
        return self.mib * MIB

    def trim(self) -> None:
        self.trims += 1
        self.mib -= self.free_mib
        self.free_mib = 0


def test_memory_is_trimmed_once_after_a_peak() -> None:
    """Memory is trimmed once a peak has ended, but not while or shortly after requests are held."""
    process = Process()
    trimmer = Trimmer(process.resident, process.trim)
    process.mib, process.free_mib = 1000, 800
    for held_bytes in (500 * MIB, 0, 500 * MIB, 0):
        trimmer.look(held_bytes)
    assert 0 == process.trims
    for _ in range(9):
        trimmer.look(0)
    assert (1, 200) == (process.trims, process.mib)
    process.mib, process.free_mib = 300, 100
    trimmer.look(0)
    assert 2 == process.trims


def test_small_peak_is_not_trimmed() -> None:
    """A peak of a few megabytes is not trimmed."""
    process = Process()
    trimmer = Trimmer(process.resident, process.trim)
    process.mib = 150
    for _ in range(9):
        trimmer.look(0)
    assert 0 == process.trims


def test_the_process_gives_its_memory_back() -> None:
    """Two hundred freed megabytes are returned, although the last block of the heap is in use."""
    output = subprocess.run(
        [sys.executable, "-c", PEAK], check=True, capture_output=True, text=True
    ).stdout
    before, among, after = map(int, output.split())
    assert among - before > 150 * MIB
    assert after - before < 20 * MIB
    assert resident_bytes() > 0


def test_existing_objects_are_frozen_and_collector_runs_rarely() -> None:
    """Existing objects are frozen, and the collector runs only after tens of thousands more."""
    text = """
import gc
from carpool.memory import collect_rarely
gc.disable()
kept = [[] for _ in range(1000)]
collect_rarely()
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
few = [[] for _ in range(40_000)]
print(gc.isenabled(), gc.get_freeze_count() > 1000, len(looks))
more = [[] for _ in range(20_000)]
print(len(looks) > 0)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ["True True 0", "True"] == done.stdout.splitlines()
