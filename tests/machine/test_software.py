"""The packages of this Python, whose own files other programs may have broken."""

import json

from rn50.machine import software


def test_only_packages_that_say_name_and_version_count(tmp_path, monkeypatch):
    for name, metadata in (
        ("whole", b"Name: Whole\nVersion: 1.2\n"), ("empty", None), ("nameless", b"Version: 1.2\n"),
        ("unversioned", b"Name: unversioned\n"), ("latin1", b"Name: latin1\nVersion: 1.2\nAuthor: Ren\xe9\n"),
    ):
        folder = tmp_path / f"{name}-1.2.dist-info"
        folder.mkdir()
        if metadata is not None:
            (folder / "METADATA").write_bytes(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    found = software.read().packages
    assert found["whole"] == "1.2" and found["pytest"]
    assert not {"none", "empty", "nameless", "unversioned", "latin1"} & set(found)
    json.dumps(found, sort_keys=True)  # as a run saves them
