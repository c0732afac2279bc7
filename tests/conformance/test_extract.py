"""The extractor on texts written for these tests; nothing of the documents that it is for."""

from __future__ import annotations

from tests.conformance.extract import Block, directive_blocks, fenced_blocks, notebook_cells


def test_a_notebook_cell_ends_at_the_next_heading():
    text = "## One\n\nIn [None]:\na = 1\n\n## Two\nprose\nIn [3]:\nb = 2\n"
    assert notebook_cells(text) == [Block("One", "a = 1\n"), Block("Two", "b = 2\n")]


def test_fences_of_other_languages_are_left_out():
    text = "# Top\n```py\na = 1\n```\n```bash\nls\n```\n### Low\n```python\nb = 2\n```\n"
    assert fenced_blocks(text) == [Block("Top", "a = 1\n"), Block("Low", "b = 2\n")]


def test_directives_lose_their_indentation_and_know_their_heading():
    block = "  .. code-block:: python\n\n      if a:\n          b\n\n  prose\n\n"
    text = f"Title\n=====\n\n{block}.. code-block:: bash\n\n  ls\n"
    assert directive_blocks(text) == [Block("Title", "if a:\n    b\n")]
