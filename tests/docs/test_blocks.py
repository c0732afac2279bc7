"""Every code block of the documentation runs, and prints what its page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, WRITTEN, name_of, script

blocks = script(DOCS / "site" / "blocks.py")
# pages that run in the default suite; each command of a page starts a program
QUICK = {"README.md"}
# what pages need besides nkilab
NEEDS = {
    "docs/frameworks.md": ("torch", "jax"),
    "docs/tutorials/pytorch-and-jax.md": ("torch", "jax"),
}


def marked(path: Path) -> object:
    name = name_of(path)
    marks = [] if name in QUICK else [pytest.mark.slow]
    marks += [getattr(pytest.mark, need) for need in NEEDS.get(name, ()) if "." not in need]
    return pytest.param(path, id=name, marks=marks)


WITH_BLOCKS = [path for path in WRITTEN if "```" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_every_block_has_a_kind_and_what_does_not_run_has_a_reason(path: Path) -> None:
    page = path.read_text("utf-8")
    assert blocks.indented(page) == []
    for block in blocks.blocks(page):
        assert block.kind in blocks.KINDS, f"{path}: {block}"
        is_run = block.kind in ("python", "console", "output")
        assert is_run or block.kind == "text" or block.file or block.reason, f"{path}: {block}"


@pytest.mark.parametrize("path", [marked(path) for path in WITH_BLOCKS])
def test_the_blocks_of_a_page_do_what_it_shows(path: Path, tmp_path: Path) -> None:
    for need in NEEDS.get(name_of(path), ()):
        pytest.importorskip(need)
    folder = tmp_path / "page"
    folder.mkdir()
    page = path.read_text("utf-8")
    assert blocks.run(page, folder.resolve()) == page


def test_all_that_names_no_page_is_gone() -> None:
    assert [name for name in (*QUICK, *NEEDS) if not (ROOT / name).is_file()] == []


# the collector itself


def ran(page: str, folder: Path, *, write: bool = False) -> str:
    place = folder / f"page{len(list(folder.iterdir()))}"
    place.mkdir()
    return blocks.run(page, place, write=write)


PAGE = """\
`a.txt`:

```text
one
two
```

```console
$ cat a.txt
one
...
$ ls
a...
```

```python
x = 3
```

```python
print(x)
```

```output
3
```

```sh
rm everything
```

*Not run by the tests: it would be a pity.*
"""


def test_files_commands_and_python_run_in_order(tmp_path: Path) -> None:
    assert ran(PAGE, tmp_path) == PAGE


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("one\n...", "one", "line 8: $ cat a.txt"),
        ("$ ls\na...", "$ false", r"line 8: \$ false"),
        ("```output\n3", "```output\n4", "line 24: it prints\n3"),
        ("```output\n3\n```\n", "", "line 20: prints what no output block shows"),
        ("print(x)", "print(y)", "NameError: name 'y' is not defined"),
        ("*Not run by the tests: it would be a pity.*", "", "line 28: sh is neither run nor a file"),
        ("$ cat a.txt", "cat a.txt", "no command: cat a.txt"),
    ],
)
def test_what_does_not_agree_is_found(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    assert old in PAGE
    with pytest.raises(blocks.Mismatch) as caught:
        ran(PAGE.replace(old, new), tmp_path)
    assert complaint.replace("\\", "") in str(caught.value)


def test_what_is_printed_can_be_written_into_the_page(tmp_path: Path) -> None:
    wrong = PAGE.replace("one\n...", "?").replace("```output\n3", "```output\n?")
    assert ran(wrong, tmp_path, write=True) == PAGE.replace("one\n...", "one\ntwo")


def test_commands_below_a_line_that_ends_with_a_file_run(tmp_path: Path) -> None:
    with pytest.raises(blocks.Mismatch, match="prints\nb"):
        ran("Look at `a.html`:\n\n```console\n$ echo b\n?\n```\n", tmp_path)


def test_a_part_of_a_file_stands_in_it(tmp_path: Path) -> None:
    part = "\nFrom `a.txt`:\n\n```text\n{}\n```\n"
    assert ran(PAGE + part.format("two"), tmp_path)
    with pytest.raises(blocks.Mismatch, match=r"a\.txt has no such part"):
        ran(PAGE + part.format("three"), tmp_path)


def test_a_block_that_is_indented_is_found() -> None:
    assert blocks.indented("text\n\n    nkilab run\n") == [3]
