"""The generated documents: they are up to date, say what the manuals say, and are sound Markdown."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from nkilab.errors import FileError
from nkilab.isa import REGISTRY
from nkilab.isa.activations import ACTIVATIONS
from nkilab.isa.operators import OPERATORS
from nkilab.isa.uses import chips_of
from nkilab.machine import MACHINES
from nkilab.pages.choices import THEMES, choices, choices_about
from nkilab.pages.content import Page, Section, Table, Text
from nkilab.pages.costs import examples
from nkilab.pages.folder import MARK, documents, inline, markdown, write
from nkilab.pages.instruction import NOT_THE_HARDWARES
from nkilab.pages.meanings import ACTIVATION_MEANINGS, OPERATOR_MEANINGS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "instructions"
COMMAND = "python -m nkilab.pages docs/instructions"
every = pytest.mark.parametrize("name", sorted(REGISTRY))


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return documents()


def rows_of(text: str, first: str) -> list[list[str]]:
    """Cells of the rows of tables whose first cell is `first`."""
    lines = [line[2:-2].split(" | ") for line in text.split("\n") if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip() == first]


# the folder


def test_the_committed_pages_are_those_that_are_made_now(written: dict[str, str]) -> None:
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    assert sorted(committed) == sorted(written), f"run: {COMMAND}"
    old = [name for name, text in written.items() if committed[name] != text]
    assert not old, f"{', '.join(old)} differ from the declarations; run: {COMMAND}"


def test_every_instruction_has_a_page_and_a_line_in_the_index(written: dict[str, str]) -> None:
    for name in REGISTRY:
        assert f"{name}.md" in written
        assert f"| [`{name}`]({name}.md) |" in written["README.md"]


def test_writing_twice_changes_nothing_and_removes_what_is_no_page_any_more(tmp_path: Path) -> None:
    assert len(write(tmp_path)) == len(documents())
    assert write(tmp_path) == []
    (tmp_path / "gone.md").write_text(f"# gone\n\n{MARK}")
    (tmp_path / "mine.md").write_text("# mine\n")
    (tmp_path / "iota.md").write_text("changed by hand")
    assert write(tmp_path) == ["gone.md", "iota.md"]
    assert sorted(path.name for path in tmp_path.glob("[gmi]*.md") if path.stem in ("gone", "mine")) == [
        "mine.md"
    ]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError) as caught:
        write(tmp_path / "file")
    assert str(caught.value) == f"{tmp_path / 'file'} cannot be written: file exists"


def test_the_command_writes_the_pages_and_says_what_changed(tmp_path: Path, written: dict[str, str]) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nkilab.pages", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first, second, wrong = call(str(tmp_path)), call(str(tmp_path)), call()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(f"{len(written)} files changed: README.md, ")
    assert (second.returncode, second.stdout) == (0, "0 files changed\n")
    assert (wrong.returncode, wrong.stderr) == (2, "usage: python -m nkilab.pages FOLDER\n")
    assert {path.name: path.read_text("utf-8") for path in tmp_path.glob("*")} == written


def test_the_wheel_carries_the_choices_that_pages_quote() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["docs/differences.md"] == "nkilab/differences.md"


# what pages say, against the manuals


LIMITS = [
    # nki.isa.nc_matmul, tile size: 128 by 128 stationary, 512 moving; trn3: 4096 over all banks of PSUM
    ("nc_matmul", "`K`", ["128", "128", "128"]),
    ("nc_matmul", "`M`", ["128", "128", "128"]),
    ("nc_matmul", "`N`", ["512", "512", "4096"]),
    # nki.isa.max8: at most 16,384 elements per partition
    ("max8", "`F`", ["16384", "16384", "16384"]),
    # nki.language.tile_size.bn_stats_fmax
    ("bn_stats", "`F`", ["512", "512", "512"]),
    # SBUF has 128 partitions
    ("tensor_tensor", "`P`", ["128", "128", "128"]),
    ("activation", "`P`", ["128", "128", "128"]),
]


@pytest.mark.parametrize(("name", "axis", "most"), LIMITS)
def test_limits_are_those_of_the_manuals(
    name: str, axis: str, most: list[str], written: dict[str, str]
) -> None:
    (row,) = rows_of(written[f"{name}.md"], axis)
    assert row[1:4] == most


# hand: cycles of the manual's table / clock in GHz + what the chip's row adds to an instruction
TIMES = [
    # 2.26 costs, nc_matmul: N cycles in bfloat16; float32 takes four passes, in two instructions. Profiles of
    # trn2: 8 cycles more per instruction
    ("nc_matmul", "MATMUL", 0, {"trn1": 512 / 2.8, "trn2": 520 / 2.4, "trn3": 520 / 2.4}),
    ("nc_matmul", "MATMUL LOW", 0, {"trn1": 1024 / 2.8, "trn2": 1032 / 2.4, "trn3": 1032 / 2.4}),
    # profiles of trn2: 128 cycles and 52 ns, twice the cycles in float32; on trn1, whose fast LoadStationary
    # is told of two bytes alone, assumed: as many passes as of a MATMUL
    ("nc_matmul", "LDWEIGHTS", 0, {"trn1": 128 * 4 / 2.8, "trn2": 256 / 2.4 + 52}),
    # 2.26 costs: 2N in float32, N in bfloat16; trn1 guide: 60 cycles more to access a tensor
    ("tensor_tensor", "TENSOR_TENSOR", 0, {"trn1": 1084 / 1.12}),
    ("tensor_tensor", "TENSOR_TENSOR", 1, {"trn1": 572 / 1.12}),
    # trn2 guide: 256 elements per cycle in float32, four times as many as trn1 in 16-bit types
    ("tensor_copy", "TENSOR_COPY", 0, {"trn1": 572 / 1.12, "trn2": 256 / 0.96 + 40}),
    ("tensor_copy", "TENSOR_COPY", 1, {"trn1": 572 / 1.12, "trn2": 128 / 0.96 + 40}),
    # 2.4 cycles an element (silu and AdamW of NKIBench), where 2.26 costs has 8N
    ("reciprocal", "RECIPROCAL", 0, {"trn1": (2.4 * 512 + 60) / 1.12, "trn2": 2.4 * 512 / 0.96 + 40}),
    # 2.26 costs: 150 + N
    ("iota", "IOTA", 0, {"trn1": 166 / 1.4, "trn2": 166 / 1.2, "trn3": 166 / 1.2}),
    # 2.26 costs, activation: N; activation_reduce: N, then 64
    ("activation", "ACTIVATE", 0, {"trn1": 512 / 1.4 + 72, "trn2": 512 / 1.2 + 115}),
    ("activation_reduce", "ACTIVATE", 1, {"trn1": 64 / 1.4, "trn2": 64 / 1.2}),
    # 2.26 costs, tensor_reduce of bfloat16: N / 2; bn_stats: N; max8: N
    ("tensor_reduce", "TENSOR_REDUCE", 1, {"trn1": 316 / 1.12}),
    ("bn_stats", "BN_STATS", 0, {"trn1": 572 / 1.12}),
    ("max8", "MAX8", 0, {"trn1": 572 / 1.12}),
    # course dumps: 2.2 ns + bytes / 27.3 + 2.5 per row of 2 KiB, 8 rows on each of 16 engines, a semaphore
    ("dma_copy", "DMA", 0, {"trn2": 8 * (2.2 + 2048 / 27.3 + 2.5) + 8}),
]


@pytest.mark.parametrize(("name", "step", "place", "times"), TIMES)
def test_times_are_cycles_of_the_manuals_over_the_clock(
    name: str, step: str, place: int, times: dict[str, float], written: dict[str, str]
) -> None:
    rows = rows_of(written[f"{name}.md"], step)
    for chip, expected in times.items():
        column = 2 + list(MACHINES).index(chip)
        of_chip = [row[column] for row in rows if row[column]]
        assert of_chip[place] == f"{expected:.1f}"


def test_the_certainty_of_a_time_is_that_of_its_least_certain_number(written: dict[str, str]) -> None:
    # overhead of VectorE: documented on trn1, fitted on trn2, scaled to its clock on trn3
    trn1, later = rows_of(written["tensor_tensor.md"], "TENSOR_TENSOR")[:2]
    assert trn1[-1] == "documented"
    assert later[-1] == "fitted on trn2, assumed on trn3"
    # 2.26 costs give 150 + N; the clock is documented
    assert rows_of(written["iota.md"], "IOTA")[0][-1] == "documented"
    # no cycle table was published for exponential
    assert rows_of(written["exponential.md"], "EXPONENTIAL")[0][-1] == "assumed, times 2"


CHIPS = [
    ("exponential", "trn3"),
    ("activate2", "trn3"),
    ("range_select", "trn2, trn3"),
    ("nonzero_with_count", "trn2, trn3"),
    ("nc_matmul", "trn1, trn2, trn3"),
]


@pytest.mark.parametrize(("name", "chips"), CHIPS)
def test_a_page_names_the_chips_that_have_the_instruction(
    name: str, chips: str, written: dict[str, str]
) -> None:
    (line,) = [line for line in written[f"{name}.md"].split("\n") if line.startswith("- chips: ")]
    assert line.removeprefix("- chips: ").split(" (")[0] == chips


VERSIONS = [
    # release notes: Beta 1 is SDK 2.20 to 2.26; nc_n_gather came with 0.1, exponential with 0.2, activate2
    # with 0.4
    ("nc_matmul", "Beta 1 to 0.7"),
    ("nc_n_gather", "0.1 to 0.7"),
    ("exponential", "0.2 to 0.7"),
    ("activate2", "0.4 to 0.7"),
]


@pytest.mark.parametrize(("name", "versions"), VERSIONS)
def test_a_page_names_the_versions_that_have_the_instruction(
    name: str, versions: str, written: dict[str, str]
) -> None:
    assert f"\n- NKI: {versions}\n" in written[f"{name}.md"]


SIGNATURES = [
    # stubs of SDK 2.26
    "neuronxcc.nki.isa.tensor_copy(src, *, engine=nisa.engine.unknown, dtype=None, mask=None)",
    "neuronxcc.nki.isa.max8(*, src, dtype=None, mask=None)",
    # stubs of NKI 0.3
    "nki.isa.tensor_tensor(dst, data1, data2, op, engine=nisa.engine.unknown, *, name=None)",
    "nki.isa.reciprocal(dst, data, *, name=None)",
]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_signatures_are_those_of_the_stubs(signature: str, written: dict[str, str]) -> None:
    name = signature.split("(")[0].rpartition(".")[2]
    assert f"\n{signature}\n" in written[f"{name}.md"]


def test_pages_of_random_instructions_say_that_the_bits_are_not_the_hardwares(
    written: dict[str, str],
) -> None:
    random = ("dropout", "rng", "rand2", "set_rng_seed", "rand_set_state", "rand_get_state")
    pages = {name: written[f"{name}.md"].replace("\n", " ") for name in REGISTRY}
    assert {name for name, text in pages.items() if NOT_THE_HARDWARES in text} == set(random)


def test_accumulators_are_named(written: dict[str, str]) -> None:
    of_vector = "- registers: the accumulator registers of VectorE, one float32 per partition\n"
    of_scalar = of_vector.replace("VectorE", "ScalarE")
    # nki.isa.exponential, "Accumulator behavior"; nki.isa.activation, reduce_cmd
    assert of_vector in written["exponential.md"]
    assert of_vector in written["tensor_scalar_reduce.md"]
    assert of_scalar in written["activation.md"]
    assert "- accumulates: in PSUM, in float32\n" in written["nc_matmul.md"]
    assert "registers:" not in written["tensor_copy.md"]


# laws of every page


@every
def test_a_page_names_all_that_the_declaration_has(name: str, written: dict[str, str]) -> None:
    cls, text = REGISTRY[name], written[f"{name}.md"]
    for word in (*cls.parameters, *cls.example.expected):
        assert f"`{word}`" in text or f"# {word}: " in text
    for rule in (*cls.rules, *cls.call_rules):
        assert inline(rule.sentence, {}).split("`")[0] in text
        assert inline(rule.source, {}) in text
    assert inline(cls.source, {}) in text.replace("\n", " ")


@every
def test_the_formula_of_a_step_gives_its_time(name: str) -> None:
    for example in examples(REGISTRY[name]):
        for steps in example.steps:
            for step in steps:
                facts = {k: f.value for k, f in MACHINES[step.chip].facts().items()}
                if step.step.engine != "dma":
                    assert eval(step.busy, {}, facts) == pytest.approx(step.busy_ns, rel=1e-9)
                if step.latency:
                    assert eval(step.latency, {}, facts) == pytest.approx(step.latency_ns, rel=1e-9)


@every
def test_the_example_of_a_cost_is_one_that_every_chip_with_the_instruction_allows(name: str) -> None:
    chips = [machine.name for machine in chips_of(REGISTRY[name])]
    for example in examples(REGISTRY[name]):
        assert [steps[0].chip for steps in example.steps] == chips


def test_every_page_is_sound_markdown(written: dict[str, str]) -> None:
    reader = MarkdownIt("commonmark").enable("table")
    for name, text in written.items():
        tokens = reader.parse(text)
        kinds = [token.type for token in tokens]
        assert kinds.count("html_block") == 1, name
        assert kinds.count("hr") == kinds.count("blockquote_open") == kinds.count("ordered_list_open") == 0, (
            name
        )
        lines = text.split("\n")
        assert kinds.count("table_open") == sum(line.startswith("| ---") for line in lines), name
        assert kinds.count("tr_open") == sum(
            line.startswith("| ") and not line.startswith("| ---") for line in lines
        ), name
        assert kinds.count("list_item_open") == sum(line.startswith("- ") for line in lines), name
        prose = "".join(text.split("```")[::2]).split("\n")
        assert kinds.count("heading_open") == sum(line.startswith(("# ", "## ")) for line in prose), name
        children = [child for token in tokens for child in token.children or []]
        assert not [child for child in children if child.type in ("html_inline", "em_open", "strong_open")], (
            name
        )
        for child in children:
            if child.type == "link_open":
                target = str(child.attrs["href"])
                assert target in written or (FOLDER / target).resolve().is_file(), f"{name}: {target}"


def test_what_markdown_would_interpret_is_escaped_and_cells_hold_bars() -> None:
    text = "a * b, x <op> y, _private of some_name, `p | q`"
    blocks = (Text(text), Table(("head",), (("a | b",), (text,))))
    page = Page("t", "index", (Section("", blocks),))
    html = MarkdownIt("commonmark").enable("table").render(markdown(page))
    assert "<p>a * b, x &lt;op&gt; y, _private of some_name, <code>p | q</code></p>" in html
    assert "<td>a | b</td>" in html
    assert "<code>p | q</code></td>" in html


# what nkilab chose


def test_every_theme_is_a_question_of_the_document() -> None:
    for theme, _ in THEMES:
        assert [question for question, _ in choices() if question.startswith(theme)], theme


def test_choices_are_quoted_where_they_concern_an_instruction(written: dict[str, str]) -> None:
    silent = "## Where public text is silent"
    assert "Order of the products in" in written["nc_matmul.md"].split(silent)[1]
    assert "Sum of tiles in" in written["dma_compute.md"].split(silent)[1]
    assert "An index past the end in" in written["local_gather.md"].split(silent)[1]
    assert [q for q, _ in choices_about(REGISTRY["iota"])] == ["`iota`"]
    assert silent not in written["memset.md"]


# meanings


def test_every_operator_and_function_has_a_meaning() -> None:
    assert set(OPERATOR_MEANINGS) == set(OPERATORS)
    assert set(ACTIVATION_MEANINGS) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", [n for n, m in OPERATOR_MEANINGS.items() if m.startswith("`")])
def test_the_formula_of_an_operator_is_what_it_computes(name: str) -> None:
    kind = np.int32 if OPERATORS[name].is_bitvec else np.float32
    x, y = np.array([1, 5, 9, 12], kind), np.array([3, 2, 1, 5], kind)
    formula = OPERATOR_MEANINGS[name].split("`")[1]
    expected = eval(formula, {"x": x, "y": y, "sqrt": np.sqrt})
    computed = OPERATORS[name].function(*((x,) if OPERATORS[name].is_unary else (x, y)))
    np.testing.assert_allclose(computed, expected, rtol=1e-6)


def spans_of(meaning: str) -> list[str]:
    """What stands as code in a meaning; that of erf is an integral, told in words."""
    return [] if "integral" in meaning else re.findall(r"`([^`]+)`", meaning)


FORMULAS = {
    name: spans for name, m in ACTIVATION_MEANINGS.items() if (spans := spans_of(m)) and spans != ["x"]
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formula_of_a_function_is_what_it_computes(name: str) -> None:
    x = np.linspace(0.1, 1.4, 14)
    known = {
        "x": x, "exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh, "log": np.log, "sin": np.sin, "cos": np.cos,
        "tan": np.tan, "pi": np.pi, "e": np.e, "max": np.maximum, "erf": ACTIVATIONS["erf"].function,
    }  # fmt: skip
    known["sigmoid"] = lambda t: 1 / (1 + np.exp(-t))
    known["softplus"] = lambda t: np.log(1 + np.exp(t))
    known["cdf"] = lambda t: (1 + known["erf"](t / np.sqrt(2))) / 2
    spans = list(FORMULAS[name])
    if "s = sigmoid" in spans[-1]:
        known["s"] = eval(spans.pop().partition("=")[2], known)
    np.testing.assert_allclose(ACTIVATIONS[name].function(x), eval(spans[0], known), rtol=1e-6)
