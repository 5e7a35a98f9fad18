from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from perdure.storage.directories import AWAY, LABEL, NEW, Directory, NotStoredError, Owner, remove, restore, stored

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "default"
OLD = 3600
OWNER = Owner(NAMESPACE, "session:a:~:s")


def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "payloads", NAMESPACE)


def age(path: Path, seconds: float = OLD) -> None:
    """Make a file old."""
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def remove_all(store: Directory, cutoff: float) -> int:
    """Do what a sweep does to a folder that nothing refers to."""
    return sum(
        remove(file, cutoff)
        for folder in store.folders(NAMESPACE)
        for file in list(stored(folder))
        if file.modified < cutoff
    )


def test_what_was_stored_is_found_under_its_name_and_the_folder_says_whose_it_is(tmp_path: Path) -> None:
    store = directory(tmp_path)
    name = store.put(OWNER.workflow_id, b"data")
    assert store.get(name) == b"data"
    assert store.put(OWNER.workflow_id, b"data") == name
    (folder,) = store.folders(NAMESPACE)
    assert store.owner(folder) == OWNER
    assert [file.size for file in stored(folder)] == [4]


@given(st.text(max_size=30), st.text(max_size=30))
def test_namespaces_and_sessions_of_any_name_have_folders_of_their_own(one: str, other: str) -> None:
    """Two namespaces that share a storage have sessions of the same names."""
    folders = {Owner(one or "n", other).folder, Owner(other or "n", one).folder}
    assert len(folders) == (1 if (one or "n", other) == (other or "n", one) else 2)


def test_a_name_of_before_there_were_namespaces_is_still_read_and_never_swept(tmp_path: Path) -> None:
    store = Directory(tmp_path)
    name = store.put("session:a:~:s", b"data")
    assert name.count("/") == 1
    assert store.get(name) == b"data"
    assert list(store.folders(NAMESPACE)) == list(store.folders("")) == []


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", "a" * 32, f"{'a' * 32}/../{'b' * 64}", f"{'a' * 32}/.x"])
def test_what_is_no_name_of_ours_is_not_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotStoredError):
        directory(tmp_path).get(name)


def test_a_damaged_file_is_not_believed_and_is_written_anew(tmp_path: Path) -> None:
    store = directory(tmp_path)
    name = store.put(OWNER.workflow_id, b"data")
    (store.root / name).write_bytes(b"dat")
    with pytest.raises(NotStoredError):
        store.get(name)
    store.put(OWNER.workflow_id, b"data")
    assert store.get(name) == b"data"


def test_what_is_stored_again_becomes_young_again(tmp_path: Path) -> None:
    store = directory(tmp_path)
    name = store.put(OWNER.workflow_id, b"data")
    age(store.root / name)
    store.put(OWNER.workflow_id, b"data")
    assert remove_all(store, time.time() - OLD / 2) == 0
    age(store.root / name)
    assert remove_all(store, time.time() - OLD / 2) == 1
    with pytest.raises(NotStoredError):
        store.get(name)


@pytest.mark.parametrize("moment", ["before the touch", "behind the touch", "before the second look"])
def test_a_sweep_at_any_moment_of_a_second_store_loses_nothing(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has seen the file old, and goes for it while it is being stored again."""
    store = directory(tmp_path)
    name = store.put(OWNER.workflow_id, b"data")
    age(store.root / name)
    (file,) = stored(next(store.folders(NAMESPACE)))
    touch: Callable[..., None] = os.utime
    removed: list[bool] = []

    def swept_meanwhile(path: Path) -> None:
        monkeypatch.undo()
        if moment == "before the touch":
            removed.append(remove(file, time.time() - 60))
        touch(path)
        if moment == "behind the touch":
            removed.append(remove(file, time.time() - 60))
        if moment == "before the second look":  # the touch reached a file that is not at its place any more
            age(path)
            removed.append(remove(file, time.time() - 60))

    monkeypatch.setattr("perdure.storage.directories.os.utime", swept_meanwhile)
    assert store.put(OWNER.workflow_id, b"data") == name
    assert removed == [moment != "behind the touch"]
    assert store.get(name) == b"data"


def test_a_file_in_a_sweeps_hands_can_be_read_and_goes_back_when_the_sweep_was_killed(tmp_path: Path) -> None:
    store = directory(tmp_path)
    name = store.put(OWNER.workflow_id, b"data")
    path = store.root / name
    aside = path.with_name(f"{AWAY}{'0' * 32}-{path.name}")
    path.rename(aside)
    assert store.get(name) == b"data"
    (file,) = stored(path.parent)
    assert file.content == path.name
    assert not remove(file, time.time() - 60)
    assert path.exists()
    path.rename(aside)
    restore(file)
    assert [each.path for each in stored(path.parent)] == [path]


def test_what_a_killed_writer_left_is_seen_and_removed(tmp_path: Path) -> None:
    store = directory(tmp_path)
    folder = (store.root / store.put(OWNER.workflow_id, b"data")).parent
    (folder / f"{NEW}abc").write_bytes(b"da")
    (folder / ".tmp").write_bytes(b"da")
    for path in folder.iterdir():
        age(path)
    assert {file.path.name for file in stored(folder) if file.content is None} == {f"{NEW}abc", ".tmp"}
    assert remove_all(store, time.time() - 60) == 3
    store.tidy(OWNER)
    assert not folder.exists()


def test_a_folder_that_is_used_again_while_it_is_forgotten_keeps_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = directory(tmp_path)
    folder = (store.root / store.put(OWNER.workflow_id, b"data")).parent
    store.tidy(OWNER)
    assert (folder / LABEL).exists()
    assert remove_all(store, time.time() + 60) == 1
    rmdir = Path.rmdir

    def stored_meanwhile(path: Path) -> None:
        (path / ("0" * 64)).write_bytes(b"more")
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", stored_meanwhile)
    store.tidy(OWNER)
    assert store.owner(folder) == OWNER


def test_a_folder_with_somebody_elses_label_is_nobodys(tmp_path: Path) -> None:
    store = directory(tmp_path)
    folder = (store.root / store.put(OWNER.workflow_id, b"data")).parent
    other = (store.root / store.put("session:a:~:other", b"data")).parent
    for label in ((other / LABEL).read_bytes(), b"[]", b"{}", b"\xff"):
        (folder / LABEL).write_bytes(label)
        assert store.owner(folder) is None


YOUNG = 0.1
"""Seconds; a file that was stored within them must be there."""

SECONDS = 4


def store_and_look(root: Path, seed: int, found: multiprocessing.Queue[tuple[int, int]]) -> None:
    """Store the same few contents again and again, and look whether each is there as long as it is young."""
    dice, store = random.Random(seed), Directory(root, NAMESPACE)  # noqa: S311  # no secret
    stores = lost = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        data = b"%d" % dice.randrange(4)
        begun = time.monotonic()
        name = store.put(OWNER.workflow_id, data)
        for pause in (0, 0.001, 0.01):
            time.sleep(pause)
            try:
                store.get(name)
            except NotStoredError:
                lost += time.monotonic() - begun < YOUNG - 0.02
        stores += 1
        time.sleep(dice.random() * YOUNG * 1.5)
    found.put((stores, lost))


def sweep_on(root: Path, found: multiprocessing.Queue[int]) -> None:
    """Sweep again and again."""
    store, removed = Directory(root, NAMESPACE), 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        removed += remove_all(store, time.time() - YOUNG)
        store.tidy(OWNER)
    found.put(removed)


def test_processes_that_store_lose_nothing_beside_processes_that_sweep(tmp_path: Path) -> None:
    """Real processes on one real directory; the folder itself comes and goes, too."""
    store = directory(tmp_path)
    store.put(OWNER.workflow_id, b"0")
    spawn = multiprocessing.get_context("spawn")
    outcomes: multiprocessing.Queue[tuple[int, int]] = spawn.Queue()
    removals: multiprocessing.Queue[int] = spawn.Queue()
    writers = [spawn.Process(target=store_and_look, args=(store.root, seed, outcomes)) for seed in range(3)]
    sweepers = [spawn.Process(target=sweep_on, args=(store.root, removals)) for _ in range(2)]
    for process in (*writers, *sweepers):
        process.start()
    found = [outcomes.get(timeout=20) for _ in writers]
    removed = sum(removals.get(timeout=20) for _ in sweepers)
    for process in (*writers, *sweepers):
        process.join(20)
        assert process.exitcode == 0
    assert sum(lost for _, lost in found) == 0
    assert sum(stores for stores, _ in found) > 50
    assert removed > 20


def test_a_session_is_forgotten_with_all_that_is_there_of_it_and_nobody_else_is(tmp_path: Path) -> None:
    store = directory(tmp_path)
    mine = [store.put(OWNER.workflow_id, each) for each in (b"one", b"two")]
    other = store.put("session:a:~:other", b"one")
    elsewhere = store.put(OWNER.workflow_id, b"one", namespace="another")
    folder = next(path for path in store.folders(NAMESPACE) if store.owner(path) == OWNER)
    (folder / f"{AWAY}{'0' * 32}-{'1' * 64}").write_bytes(b"in a sweep's hands")
    (folder / f"{NEW}abc").write_bytes(b"of a killed writer")
    assert (store.count(OWNER), store.forget(OWNER), store.count(OWNER), store.forget(OWNER)) == (3, 3, 0, 0)
    assert not folder.exists()
    for name in mine:
        with pytest.raises(NotStoredError):
            store.get(name)
    assert store.get(other) == store.get(elsewhere) == b"one"
