"""A forked child does not collect its parent's garbage."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORK = """\
import asyncio, gc, os, sys
import uvloop
from carpool.process import child

PARENT = os.getpid()

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        os.write(1, b"parent" if os.getpid() == PARENT else b"child")

def fork():
    pid = os.fork()
    if not pid:
        gc.collect()
        os._exit(gc.isenabled())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def spawn():
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()

os.register_at_fork(after_in_child=gc.collect)  # as it may come at any time
gc.disable()
gc.collect()
Cycle()
gc.enable()
if sys.argv[1] == "fork":
    assert fork() == 1, "the child collects its own garbage later"
else:
    uvloop.run(spawn())
assert gc.isenabled()
gc.collect()
"""


@pytest.mark.parametrize("way", ["fork", "uvloop"])
def test_parent_garbage_is_collected_only_in_parent(way: str) -> None:
    """Garbage is collected once, in the parent, and the collector stays enabled in both."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, way], capture_output=True, text=True, check=False
    )
    assert (0, "parent") == (done.returncode, done.stdout), done.stderr
