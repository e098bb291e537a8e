"""Tests of control groups that dead providers have left: which are removed and which are kept.

The trees are plain folders, which are removed as groups are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from carpool.own_cgroup import Group, Place
from faas_stack.partition import provider_groups
from faas_stack.partition.cgroup_limits import Unusable

if TYPE_CHECKING:
    from pathlib import Path

DEAD, LIVING = "carpool-dead0000", "carpool-live0000"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Two trees in which this process is in groups of different names."""
    own = {"cpu": tmp_path / "cpu" / "here", "memory": tmp_path / "memory" / "there" / "in"}
    for folder in own.values():
        folder.mkdir(parents=True)
    return Place({name: Group(folder, tmp_path / name) for name, folder in own.items()})


def make(place: Place, name: str) -> list[Path]:
    """Make a provider's folders with an instance's folder in each, and return them."""
    folders = [group.folder / name for group in place.v1.values()]
    for folder in folders:
        (folder / "1").mkdir(parents=True)
    return folders


def test_only_our_own_groups_are_swept(place: Place, tmp_path: Path) -> None:
    """Only groups of dead providers below the own groups are removed, whatever their names."""
    dead = make(place, DEAD)
    others = [tmp_path / "cpu" / "other" / DEAD, tmp_path / "cpu" / DEAD]
    others.append(tmp_path / "cpu" / "here" / "carpool-prod.slice")
    for folder in others:
        folder.mkdir(parents=True)
    provider_groups._sweep(place)
    assert [False, False] == [folder.exists() for folder in dead]
    assert all(folder.exists() for folder in others)


@pytest.mark.parametrize("tree", [0, 1])
def test_lock_in_any_tree_keeps_all_folders(place: Place, tree: int) -> None:
    """A lock in any tree keeps all of a provider's folders."""
    folders = make(place, LIVING)
    lock = provider_groups._lock(folders[tree])
    provider_groups._sweep(place)
    assert [True, True] == [folder.exists() for folder in folders]
    os.close(lock)
    provider_groups._sweep(place)
    assert [False, False] == [folder.exists() for folder in folders]


def test_a_provider_locks_all_its_folders(place: Place) -> None:
    """A provider locks its folders in all trees."""
    tree, locks = provider_groups.open_tree(place, LIVING)
    assert [True, True] == [provider_groups._is_locked(root) for root in tree.roots]
    for lock in locks:
        os.close(lock)
    assert [False, False] == [provider_groups._is_locked(root) for root in tree.roots]


def test_groups_may_vanish(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that vanish during the sweep do no harm."""
    dead = make(place, DEAD)
    seen = provider_groups._below

    def vanishing(folder: Path) -> list[str]:
        names = seen(folder)
        for each in dead:
            if each.parent == folder:
                (each / "1").rmdir()
                each.rmdir()
        return names

    with monkeypatch.context() as patch:
        patch.setattr(provider_groups, "_below", vanishing)
        provider_groups._sweep(place)
    for group in place.v1.values():
        group.folder.rmdir()
    provider_groups._sweep(place)
    with pytest.raises(Unusable):
        provider_groups.open_tree(place, LIVING)
