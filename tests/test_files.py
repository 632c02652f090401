"""Reading, writing and naming files that strangers gave, each with what should hurt it."""

import hashlib
import os
import pathlib
import resource
import signal
import socket

import pytest
from click.testing import CliRunner

from rn50 import files
from rn50.cli import main
from rn50.errors import UserError
from rn50.submission import yaml_file

OLD_MARK = "written by rn50 0.0.1"


def no_file(folder, kind):
    """Something of ``kind`` that is no regular file."""
    path = folder / "X"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(path))  # a socket's name is short
    else:
        path = pathlib.Path("/dev/zero")
    return path


KINDS = ("a pipe", "a folder", "a socket", "a device")


@pytest.mark.parametrize("kind", KINDS)
def test_no_regular_file_is_read_or_waited_for(tmp_path, kind):
    path = no_file(tmp_path, kind)
    with pytest.raises(UserError, match=f"^{path}: is {kind}, no regular file; remedy$"):
        files.read_bytes(path, remedy="remedy")


@pytest.mark.parametrize("force", (files.NOTHING, files.OURS, files.ANY))
@pytest.mark.parametrize("kind", KINDS)
def test_no_regular_file_is_replaced(tmp_path, kind, force):
    path = no_file(tmp_path, kind)
    before = os.lstat(path)
    with pytest.raises(UserError, match=f"^{path}: is {kind}, no regular file; remedy$"):
        files.write(path, files.MARK, force, "remedy")
    assert os.lstat(path)[:3] == before[:3]


@pytest.mark.parametrize("name", ("a" * 256, "nul\0nul", "\ud800", "loop", "file/below", "not there/file"))
def test_a_name_that_cannot_be_opened_is_a_line(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    path = tmp_path / name
    with pytest.raises(UserError, match="; give"):
        files.read_bytes(path)
    with pytest.raises(UserError, match="; name another file$"):
        files.write(path, files.MARK)


def test_a_name_that_is_no_utf8_is_a_name_like_others(tmp_path):
    path = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe$x^$"))
    files.write(path, "text")
    assert files.read_text(path) == "text"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission_is_a_line(tmp_path):
    (tmp_path / "file").touch(0)
    with pytest.raises(UserError, match="cannot be read .Permission denied.; give"):
        files.read_bytes(tmp_path / "file")


def test_a_missing_file_is_told_from_others(tmp_path):
    with pytest.raises(files.MissingError, match="No such file or directory.; make it"):
        files.read_json(tmp_path / "file", remedy="make it")


def test_no_more_is_read_than_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(UserError, match="more than 4 bytes"):
        files.read_bytes(tmp_path / "file", 4)


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path):
    (tmp_path / "file").write_bytes(b"one\ntwo\n\xff\n")
    with pytest.raises(UserError, match="line 3: bytes that are no UTF-8 text"):
        files.read_text(tmp_path / "file")


@pytest.mark.parametrize(
    "text",
    ("[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, "[" * 65 + "]" * 65, "NaN", "-Infinity", "1e999",
     "9" * 1_000_000, '"\\' * 1_000_000, '"' * 1_000_001, "", "{", "1 2"))
def test_a_json_bomb_is_a_line(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError, match="no JSON .*; give a JSON file"):
        files.read_json(tmp_path / "file")


def test_json_is_read():
    assert files.parse_json('{"a": [1, -2.5, null, "\\ud800"]}') == {"a": [1, -2.5, None, "\ud800"]}
    files.parse_json("[" * 64 + "]" * 64)


@pytest.mark.parametrize(
    "text, reason",
    (("a: &a x\nb: *a\n", "line 2: no plain YAML .an alias."),
     ("a: &a [x, x]\nb: &b [*a, *a]\n", "an alias"), ("[" * 100_000, "nested deeper than 64 levels"),
     ("- " * 5000, "nested deeper than 64 levels"), ("a: 1\na: 2\n", "line 2: .*a second a"),
     ("? [a]\n: b\n", "unhashable"), ("a: [", "line 1"), ("a: \x07", "special characters")))
def test_a_yaml_bomb_is_a_line(tmp_path, text, reason):
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError, match=f"^{tmp_path}/file: .*{reason}.*; remedy$"):
        yaml_file.read(tmp_path / "file", "remedy")


def test_yaml_is_read_as_text(tmp_path):
    (tmp_path / "file").write_text("a: no\nb: [1, 2020-01-01]\n")
    assert yaml_file.read(tmp_path / "file", "") == {"a": "no", "b": ["1", "2020-01-01"]}


def test_the_hash_is_that_of_sha256sum(tmp_path):
    (tmp_path / "file").write_bytes(bytes(3 << 20))
    assert files.sha256(tmp_path / "file") == hashlib.sha256(bytes(3 << 20)).hexdigest()


def test_what_is_written_has_the_mode_of_any_new_file_and_nothing_is_left_beside_it(tmp_path):
    (tmp_path / "other").touch()
    files.write(tmp_path / "file", "ä\ud800")
    assert (tmp_path / "file").read_bytes() == "ä\\ud800".encode()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


@pytest.mark.parametrize(
    "there, replaced_by",
    ((f"<!-- {OLD_MARK} -->", (files.OURS, files.ANY)), ("", (files.OURS, files.ANY)),
     ("somebody's", (files.ANY,)), ("x" * 5000 + files.MARK, (files.ANY,)),
     (f"<!-- {OLD_MARK} -->\n:::MLLOG {{}}", (files.OURS, files.ANY)), (":::MLLOG {}", ()),
     (f"some launcher's line\n:::MLLOG {OLD_MARK}", ())))
def test_what_may_be_replaced(tmp_path, there, replaced_by):
    path = tmp_path / "file"
    for may_replace in (files.NOTHING, files.OURS, files.ANY):
        path.write_text(there)
        if may_replace in replaced_by:
            files.write(path, files.MARK, may_replace)
            assert path.read_text() == files.MARK
        else:
            with pytest.raises(UserError, match=f"^{path}: .*; remedy"):
                files.write(path, files.MARK, may_replace, "remedy")
            assert path.read_text() == there
        assert list(tmp_path.iterdir()) == [path]


def test_a_result_log_is_known_by_its_name_too(tmp_path):
    (tmp_path / "result_0.txt").write_text(OLD_MARK)
    with pytest.raises(UserError, match="is a result log, which nothing replaces"):
        files.write(tmp_path / "result_0.txt", files.MARK, files.ANY)


def test_a_symbolic_link_is_neither_followed_nor_replaced(tmp_path):
    for target in ("ours", "missing"):
        (tmp_path / "ours").write_text(OLD_MARK)
        link = tmp_path / f"to {target}"
        link.symlink_to(target)
        with pytest.raises(UserError, match="is a symbolic link"):
            files.write(link, files.MARK, files.ANY)
        assert link.is_symlink() and not (tmp_path / "missing").exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_without_room_is_found_before_the_work(tmp_path, there):
    page = tmp_path / "page.html"
    if there:
        page.write_text(f"<!doctype html>{files.MARK}")
    files.refuse_to_replace(page, files.PAGE, needs_room=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, limits[1]))
    try:
        files.refuse_to_replace(page, files.PAGE)
        with pytest.raises(UserError, match=rf"^{page}: cannot be written \(File too large\); remedy$"):
            files.refuse_to_replace(page, files.PAGE, remedy="remedy", needs_room=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == [page] * there
    with pytest.raises(UserError, match="not there/page.html: cannot be written"):
        files.refuse_to_replace(tmp_path / "not there" / "page.html", files.PAGE, needs_room=True)


@pytest.mark.parametrize(
    "arguments",
    [("evaluate", "w.safetensors", "DEMO_CPU", "--report"),
     ("bench", "inference", "model.onnx", "--picture"), ("quantize", "model.onnx", "DEMO_CPU", "-o")],
    ids=" ".join)
def test_a_verb_finds_it_before_it_reads_anything(tmp_path, monkeypatch, arguments):
    if arguments[0] == "quantize":
        pytest.importorskip("onnx", reason="onnx is not installed")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*arguments, "not there/x.svg"])
    said = "rn50: not there/x.svg: cannot be written (No such file or directory); "
    assert done.exit_code == 2 and done.output.startswith(said)


def test_a_name_that_a_verb_cannot_even_look_for_is_a_line(tmp_path):
    name = "a" * 300
    done = CliRunner().invoke(main, ["pack", name, str(tmp_path)])
    said = f"rn50: {name}/train: File name too long; name another file or folder, or fix this one\n"
    assert (done.exit_code, done.output) == (2, said)


@pytest.mark.parametrize(
    "name, part",
    (("NF5688M6", "NF5688M6"), ("a b/c", "a_b_c"), ("../../../../tmp/x", "tmp_x"), ("..", "unnamed"),
     ("", "unnamed"), (".hidden", "hidden"), ("-rf", "rf"), ("a\0\n\x1b[1m\ud800\u202eb", "a_1m_b"),
     ("é" * 200, "é" * 50), ("a" * 5000, "a" * 100), (["x"], "x"), (None, "None"), ("/", "unnamed")))
def test_a_name_becomes_one_part_of_a_path(name, part):
    assert files.path_part(name) == part


def test_a_name_with_two_values_is_named_in_full_and_is_json(tmp_path):
    (tmp_path / "file").write_text('{"accelerators_per_node": "8", "accelerators_per_node": "4"}')
    with pytest.raises(UserError, match="file: 'accelerators_per_node' has two values; give a JSON file"):
        files.read_json(tmp_path / "file")
