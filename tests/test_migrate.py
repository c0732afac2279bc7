"""What changes between versions of NKI: each change from the release notes on a kernel of our own."""

from __future__ import annotations

import ast
import json
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nkilab.errors import FileError, NkilabError, UsageError
from nkilab.migrate import migration, report_text
from nkilab.migrate.rules import RULES
from nkilab.migrate.source import parse
from tests.command_line import call, outcome_of

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
BETA1 = "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def migration_of(text, to="", since=""):
    Path("kernel.py").write_text(text)
    return migration("kernel.py", to, since)


def lines(migrated):
    """Line, severity and what stands there, of every change."""
    return [(c.line, c.severity, c.what) for c in migrated.changes]


def body(*statements, head=HEAD):
    """A kernel of these statements, its first at line 6."""
    return head + "@nki.jit\ndef kernel(x):\n" + "".join(f"    {s}\n" for s in statements)


def test_a_file_without_nki_has_nothing_to_change(folder):
    migration = migration_of("import numpy as np\nprint(np.arange(3))\n")
    assert not migration.is_needed
    assert report_text(migration) == "kernel.py: uses no name of nki or neuronxcc.nki"


def test_a_file_of_the_newest_version_has_nothing_to_change(folder):
    text = body("t = nl.load(x)", "nisa.activation(t, nl.exp, t)", "nl.store(x, t)")
    migration = migration_of(text)
    assert report_text(migration) == (
        "kernel.py: written for NKI 0.6 (also accepted by 0.3, 0.4, 0.5, 0.7; --from names another); "
        "to NKI 0.6\n"
        "nothing to change"
    )


def test_a_report_shows_line_what_why_and_what_to_write(folder):
    migration = migration_of(body("i = nl.arange(128)[:, None]", head=BETA1))
    assert report_text(migration).split("\n\n")[0] == (
        "kernel.py: written for NKI Beta 1 (neuronxcc.nki); to NKI 0.6"
    )
    assert report_text(migration).split("\n\n")[-2:] == [
        "kernel.py:6: nl.arange: NKI 0.6 has no nl.arange; NKI 0.1 removed it\n"
        "  i = nl.arange(128)[:, None]\n"
        "  hint: index with slices or nl.ds, or with t.ap(pattern)\n"
        "  source: stubs of NKI 0.6",
        "4 to change, 0 that change silently, 0 to consider; 3 mechanical",
    ]


# Statements for 0.2, and what 0.3 makes of them. Source: NKI 0.3 release notes, breaking changes.
FROM_0_2 = [
    ("nisa.affine_select(t, p, 0, 1, t, -1.0)", "must", "nisa.affine_select(...)",
     "nisa.affine_select(t, p, offset=0, channel_multiplier=1, on_true_tile=t, on_false_value=-1.0)"),
    ("nisa.dma_compute(x, [x], [1.0], nl.add)", "must", "nisa.dma_compute(...)",
     "nisa.dma_compute(x, [x], scales=[1.0], reduce_op=nl.add)"),
    ("nisa.register_move(r, imm=4)", "must", "nisa.register_move(..., imm=)", "nisa.register_move(r, src=4)"),
    ("nisa.dma_copy(x, t, dst_rmw_op=nl.add)", "must", "nisa.dma_copy(..., dst_rmw_op=)", None),
    ("nisa.sendrecv(t, t, 1, 1, 0, use_gpsimd_dma=True)", "must",
     "nisa.sendrecv(..., use_gpsimd_dma=)", None),
    ("nisa.tensor_copy(t, t, dtype=nl.float32)", "must", "nisa.tensor_copy(..., dtype=)",
     "nisa.tensor_copy(t, t)"),
    ("t = nl.ndarray((2, 3), nl.float32, buffer='sbuf')", "must", "buffer='sbuf'",
     "t = nl.ndarray((2, 3), nl.float32, buffer=nl.sbuf)"),
    ("t = sbuf.view(dtype=nl.float32, shape=(2, 3))", "must", "sbuf.view(...)",
     "t = nl.ndarray((2, 3), nl.float32, buffer=nl.sbuf)"),
    ("t = hbm.view(nl.float32, (2, 3), name='t')", "must", "hbm.view(...)",
     "t = nl.ndarray((2, 3), nl.float32, buffer=nl.shared_hbm, name='t')"),
    ("p = nl.ndarray((2, 3), nl.float32, buffer=psum)", "must", "psum",
     "p = nl.ndarray((2, 3), nl.float32, buffer=nl.psum)"),
    ("nisa.dma_copy(dst=x, src=t, dge_mode=2)", "must", "dge_mode=2 is dge_mode.hwdge",
     "nisa.dma_copy(dst=x, src=t, dge_mode=nisa.dge_mode.hwdge)"),
    ("nisa.tensor_reduce(t, nl.add, u, 1)", "silent", "nisa.tensor_reduce(..., axis=1)", None),
]  # fmt: skip


def test_a_name_of_the_files_own_is_no_memory(folder):
    migration = migration_of(body("sbuf = t\n    sbuf.view(nl.float32)"), "0.3", "0.2")
    assert [line for line in lines(migration) if "sbuf" in line[2]] == []


@pytest.mark.parametrize(("statement", "severity", "what", "rewritten"), FROM_0_2)
def test_a_breaking_change_of_0_3_is_found(folder, statement, severity, what, rewritten):
    migration = migration_of(body(statement), "0.3", "0.2")
    assert (6, severity, what) in lines(migration)
    expected = body(rewritten) if rewritten else body(statement)
    assert migration.rewritten == expected


def test_a_second_run_finds_nothing_left(folder):
    text = "".join(f"    {row[3]}\n" for row in FROM_0_2 if row[3])
    migration = migration_of(HEAD + "@nki.jit\ndef kernel(x):\n" + text, "0.3", "0.2")
    assert migration.changes == ()


def test_results_in_hbm_move_to_shared_hbm(folder):
    text = body("out = nl.ndarray((2, 3), nl.float32, buffer=nl.hbm)", "return out")
    migration = migration_of(text, "0.3", "0.2")
    assert lines(migration) == [(6, "must", "out is returned and lies in hbm")]
    assert migration.rewritten == text.replace("nl.hbm", "nl.shared_hbm")


def test_a_tile_in_hbm_that_is_not_returned_stays(folder):
    assert migration_of(body("t = nl.ndarray((2, 3), nl.float32, buffer=nl.hbm)"), "0.3", "0.2").changes == ()


@pytest.mark.parametrize(
    ("decorator", "rewritten"),
    [
        ("@nki.jit(platform_target='trn2')", "@nki.jit()"),
        ("@nki.jit(mode='trace', platform_target='trn2')", "@nki.jit()"),
        ("@nki.jit(platform_target='trn2', mode='trace', debug_kernel=True)", "@nki.jit(debug_kernel=True)"),
        ("@nki.jit(debug_kernel=True, platform_target='trn2', mode='trace')", "@nki.jit(debug_kernel=True)"),
        ("@nki.jit(mode='trace', debug_kernel=True)", "@nki.jit(debug_kernel=True)"),
        ("@nki.jit(debug_kernel=True, platform_target='trn2', show_compiler_tb=True)",
         "@nki.jit(debug_kernel=True, show_compiler_tb=True)"),
    ],
)  # fmt: skip
def test_keywords_of_jit_that_are_gone_are_taken_out(folder, decorator, rewritten):
    migration = migration_of(HEAD + decorator + "\ndef kernel(x):\n    pass\n", "0.3", "0.2")
    assert {(c.line, c.severity) for c in migration.changes} == {(4, "must")}
    assert migration.rewritten == HEAD + rewritten + "\ndef kernel(x):\n    pass\n"


SILENT = [
    # source: NKI 0.5 stubs; the default engine of rng
    ("nisa.rng(t)", "0.4", "0.5", "engine is not given: it was engine.unknown and is now engine.vector"),
    # source: NKI 0.2 stubs and the 0.3 update guide
    ("nisa.range_select(t, t, nl.less, nl.less, b, b)", "0.1", "0.2",
     "reduce_cmd is reset_reduce where it was idle: the running maximum starts again"),
    ("nisa.quantize_mx(t, t, s)", "0.4", "0.5", "the block scale is twice what it was"),
    ("nisa.nc_transpose(t, t, engine=nisa.engine.vector)", "0.3", "0.4",
     "engine= was ignored and now decides"),
    ("nisa.nc_transpose(t, t, nisa.engine.vector)", "0.3", "0.4", "engine= was ignored and now decides"),
    ("u = nl.copy(t)", "0.5", "0.6",
     "it runs on VectorE, bit for bit between equal types; it went through float32 on ScalarE"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "since", "to", "why"), SILENT)
def test_what_changes_silently_is_marked(folder, statement, since, to, why):
    migration = migration_of(body(statement), to, since)
    assert why in [c.why for c in migration.changes if c.severity == "silent"]
    assert migration.is_needed


def test_a_given_engine_is_no_change(folder):
    assert migration_of(body("nisa.rng(t, engine=nisa.engine.gpsimd)"), "0.5", "0.4").changes == ()


def test_a_product_into_zeros_of_psum_changes_silently(folder):
    text = body("p = nl.zeros((2, 3), nl.float32, buffer=nl.psum)", "nisa.nc_matmul(p, t, t)")
    migration = migration_of(text, "0.3", "0.2")
    assert lines(migration) == [(7, "silent", "nisa.nc_matmul into a PSUM tile of nl.zeros")]
    assert migration_of(text.replace("t, t)", "t, t, accumulate=True)"), "0.4", "0.3").changes == ()


def test_an_integer_on_the_first_axis_of_a_tile_changes_silently(folder):
    text = body("t = nl.ndarray((2, 3, 4), nl.float32, buffer=nl.sbuf)", "nisa.tensor_copy(u, t[0])")
    assert (7, "silent", "t[0] takes one row of an on-chip tile") in lines(migration_of(text, "0.3", "0.2"))
    assert migration_of(text.replace("t[0]", "t[0:1]"), "0.3", "0.2").changes == ()


FROM_BETA1 = [
    ("t = nisa.activation(nl.exp, x)", "nisa.activation(...)"),
    ("t = nl.load(x, mask=m)", "nl.load(..., mask=)"),
    ("i = nl.mgrid[0:2, 0:3]", "nl.mgrid"),
    ("t = nl.load(x) + nl.load(x)", "the operator + on a tile"),
    ("t = nl.zeros((4, nl.par_dim(2), 3), nl.float32)", "a tile with axes before its partition axis"),
    ("nl.random_seed(42)", "nl.random_seed(...)"),
    ("nl.random_seed(seed=42)", "nl.random_seed(...)"),
    ("m = 0 < nl.load(x)", "a comparison of a tile"),
    ("t = nl.matmul(x, y)", "nl.matmul(...)"),
    ("nl.atomic_rmw(x, t, nl.add)", "nl.atomic_rmw"),
    (
        "p = nl.zeros((2, 3), nl.float32, buffer=nl.psum)\n    p += nisa.nc_matmul(t, t)",
        "+= nisa.nc_matmul(...)",
    ),
]


@pytest.mark.parametrize(("statement", "what"), FROM_BETA1)
def test_a_form_of_beta_1_is_found(folder, statement, what):
    migration = migration_of(body(statement, head=BETA1))
    assert what in [w for line, severity, w in lines(migration) if line >= 6 and severity == "must"]


def test_imports_of_beta_1_are_rewritten(folder):
    text = (
        "from neuronxcc import nki\nimport neuronxcc.nki.language as nl\n"
        "from neuronxcc.nki.isa import nc_matmul, tensor_copy\n"
    )
    migration = migration_of(text)
    assert [c.line for c in migration.changes] == [1, 2, 3]
    assert migration.rewritten == (
        "import nki\nimport nki.language as nl\nfrom nki.isa import nc_matmul, tensor_copy\n"
    )


def test_an_import_of_what_is_gone_is_told_and_left(folder):
    migration = migration_of("from neuronxcc.nki import benchmark, jit\n")
    assert [c.what for c in migration.changes] == ["from neuronxcc.nki", "import of benchmark"]
    assert migration.rewritten == migration.source.text


def test_an_instruction_that_writes_a_part_of_a_tile_gets_its_destination(folder):
    migration = migration_of(body("t[0:4] = nisa.reciprocal(x)", head=BETA1))
    assert migration.rewritten.splitlines()[-1] == "    nisa.reciprocal(t[0:4], x)"
    # a cast happens before the write: dropping it would round otherwise
    migration = migration_of(body("t[0:4] = nisa.reciprocal(x, dtype=nl.bfloat16)", head=BETA1))
    assert migration.rewritten.splitlines()[-1] == "    t[0:4] = nisa.reciprocal(x, dtype=nl.bfloat16)"


def test_simulate_kernel_becomes_simulate(folder):
    migration = migration_of(
        BETA1 + "a = nki.simulate_kernel(kernel[2], x, y)\nb = nki.simulate_kernel(kernel)\n"
    )
    assert migration.rewritten.splitlines()[3:] == [
        "a = nki.simulate(kernel[2])(x, y)",
        "b = nki.simulate(kernel)()",
    ]


def test_a_file_with_both_spellings_is_held_to_both(folder):
    text = "import nki.language as nl\nimport neuronxcc.nki.language as old\nold.arange(4)\nnl.nothing\n"
    assert [(c.line, c.what) for c in migration_of(text).changes] == [
        (2, "import neuronxcc.nki.language"), (3, "nl.arange"), (4, "nl.nothing"),
    ]  # fmt: skip


def test_what_an_except_imports_does_not_hide_what_its_try_does(folder):
    parts = ["import nki.language as nl", "import neuronxcc.nki.language as nl", "nl = None"]
    text = "try:\n {}\nexcept ImportError:\n try:\n  {}\n except ImportError:\n  {}\nnl.arange(4)\n"
    assert parse("k.py", text.format(*parts).encode()).uses[-1].spelling == "nki"
    parts[:2] = parts[1::-1]
    assert parse("k.py", text.format(*parts).encode()).uses[-1].spelling == "neuronxcc"


def test_aliases_and_names_imported_alone_are_recognised(folder):
    text = (
        "from neuronxcc.nki.language import arange as ar, load\nimport neuronxcc.nki.isa as machine\nar(3)\n"
    )
    assert (3, "must", "nl.arange") in lines(migration_of(text + "machine.memset((2, 3), 0, 'f4')\n"))
    assert (4, "must", "nisa.memset(...)") in lines(migration_of(text + "machine.memset((2, 3), 0, 'f4')\n"))


def test_a_name_that_is_not_nkis_is_left_alone(folder):
    assert migration_of("class nl:\n    arange = 3\nprint(nl.arange)\n").changes == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nisa.affine_select(t, p, 0, 1, t, -1.0, nl.equal, None)", "0.2"),
        ("nisa.register_move(r, imm=3)", "0.2"),
        ("t.x = nl.load(x)", "0.6"),
        ("nisa.tensor_copy_dynamic_src(t, t)", "0.3"),
        ("t = nl.ndarray((2, 3), nl.float32, buffer='sbuf')", "0.2"),
    ],
)
def test_the_version_is_the_newest_that_accepts_the_file(folder, text, version):
    assert migration_of(body(text)).recognition.version == version


def test_a_document_of_json_says_everything(folder):
    migration = migration_of(body("nisa.register_move(r, imm=4)"), "0.6", "0.2")
    assert json.loads(json.dumps(migration.to_dict())) == {
        "schema": "nkilab.migrate/1", "file": "kernel.py", "spelling": "nki", "from": "0.2",
        "accepted_by": ["0.1", "0.2"], "to": "0.6", "is_needed": True,
        "counts": {"must": 1, "silent": 0, "advice": 0},
        "changes": [{
            "line": 6, "column": 27, "severity": "must", "what": "nisa.register_move(..., imm=)",
            "why": "NKI 0.3 removed it", "replacement": "use src=", "source": "stubs of NKI 0.6",
            "text": "nisa.register_move(r, imm=4)", "is_mechanical": True,
        }],
    }  # fmt: skip


def test_columns_count_characters_and_edits_bytes(folder):
    text = body("é = 'ü'; nisa.register_move(r, imm=4)")
    migration = migration_of(text, "0.6", "0.2")
    assert migration.changes[0].column == 36
    assert migration.rewritten == text.replace("imm=", "src=")


def test_line_ends_and_encodings_stay(folder):
    text = "# -*- coding: latin-1 -*-\r\n" + body("é = nisa.register_move(r, imm=4)").replace("\n", "\r\n")
    Path("kernel.py").write_bytes(text.encode("latin-1"))
    assert migration("kernel.py", "0.6", "0.2").write()
    assert Path("kernel.py").read_bytes() == text.replace("imm=", "src=").encode("latin-1")


def test_writing_keeps_the_mode_and_leaves_no_other_file(folder):
    migration_of(body("nisa.register_move(r, imm=4)"), "0.6", "0.2")
    Path("kernel.py").chmod(0o750)
    assert migration("kernel.py", "0.6", "0.2").write()
    assert stat.S_IMODE(Path("kernel.py").stat().st_mode) == 0o750
    assert [p.name for p in folder.iterdir()] == ["kernel.py"]
    assert not migration("kernel.py", "0.6").write()


def test_a_file_that_cannot_be_replaced_stays_whole(folder, monkeypatch):
    migration = migration_of(body("nisa.register_move(r, imm=4)"), "0.6", "0.2")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(FileError) as caught:
        migration.write()
    assert str(caught.value) == "kernel.py cannot be written: no space left on device"
    assert Path("kernel.py").read_text() == migration.source.text
    assert [p.name for p in folder.iterdir()] == ["kernel.py"]


def test_every_rule_says_what_to_write_and_where_it_is_from():
    for rule in RULES:
        assert rule.why, rule
        assert rule.replacement, rule
        assert rule.source, rule


# The front door.

BAD = [
    (b"def f(:\n", "kernel.py is no Python: line 1: invalid syntax"),
    (b"\xff\xfe\x00", "kernel.py is no Python"),
    (b"# coding: nothing\n", "kernel.py is no Python"),
    (b"x = '\x00'\n", "kernel.py is no Python"),
    (b"(" * 400 + b")" * 400, "kernel.py is no Python: line 1: too many nested parentheses"),
]


@pytest.mark.parametrize(("raw", "message"), BAD, ids=range(len(BAD)))
def test_what_is_no_python_is_wrong_usage(folder, raw, message):
    Path("kernel.py").write_bytes(raw)
    with pytest.raises(UsageError) as caught:
        migration("kernel.py")
    assert str(caught.value).startswith(message)


def test_a_file_that_is_not_there_and_a_version_that_never_was_are_wrong_usage(folder):
    with pytest.raises(UsageError) as caught:
        migration("nothing.py")
    assert str(caught.value) == "there is no file nothing.py\n  hint: pass the path of a Python file"
    Path("kernel.py").write_text(HEAD)
    with pytest.raises(UsageError):
        migration("kernel.py", "1.9")
    with pytest.raises(UsageError) as caught:
        migration("kernel.py", "beta1")
    assert str(caught.value) == "--to is beta1; nothing migrates to it\n  hint: give a version of nki: 0.6"


PIECES = st.sampled_from([
    BETA1, HEAD, "@nki.jit\ndef kernel(x, *, n=[1]):\n    ", "    t = nl.load(x)\n", "t += x\n", "\t", "\n",
    "t[0, 1:2] = nisa.iota(i, 'f4')\n", "nisa.affine_select(t, p, 0, 1, *t, **k)\n", "t is None\n", ")", "#",
    "nisa.dma_copy(dst=t, src=x, dge_mode=-1)\n", "from neuronxcc.nki.language import *\n", "\r", "\x0c",
    "nki.simulate_kernel(*a)\n", "nki.jit(mode='a',)\n", "é = (nisa.rng)(t)\n", "while r: pass\n", "\\\n",
    "nl.ndarray((2, nl.par_dim(3)), buffer='sbuf')\n", "nisa.memset(t, 1e999)\n", "kernel[1, 2](x)\n",
    "import neuronxcc.nki.isa\n", "nki.isa.constants.engine.vector.name\n", "del nl.load\n",
])  # fmt: skip


@given(st.one_of(st.binary(max_size=80), st.lists(PIECES, max_size=8).map(lambda p: "".join(p).encode())))
@example(b"\xef\xbb\xbf" + body("nisa.register_move(r, imm=4)").encode())
@example(b"import nki.language as nl\rnl.par_dim(3)\r")
@example(b"x" + b".a" * 3000)
@example(b"-" * 30_000 + b"1")
def test_any_bytes_give_a_report_or_one_of_our_errors(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any.py"
    path.write_bytes(raw)
    try:
        migrated = migration(str(path))
        report_text(migrated)
        json.dumps(migrated.to_dict())
        assert migrated.diff is not None
        ast.parse(migrated.rewritten)
    except NkilabError:
        pass


# The program.


def test_the_program_answers_with_text_json_a_diff_and_three_exit_codes(folder):
    text = body("nisa.register_move(r, imm=4)")
    Path("kernel.py").write_text(text)
    code, out, err = outcome_of(call("migrate", "kernel.py", folder=folder))
    assert (code, err) == (1, "")
    assert out.startswith("kernel.py: written for NKI 0.2 (also accepted by 0.1")
    code, out, err = outcome_of(call("migrate", "kernel.py", "--json", folder=folder))
    assert (code, err, json.loads(out)["schema"]) == (1, "", "nkilab.migrate/1")
    code, out, err = outcome_of(call("migrate", "kernel.py", "--diff", folder=folder))
    assert (code, err) == (1, "")
    assert out.splitlines()[:2] == ["--- a/kernel.py", "+++ b/kernel.py"]
    assert out.splitlines()[-2:] == ["-    nisa.register_move(r, imm=4)", "+    nisa.register_move(r, src=4)"]
    assert Path("kernel.py").read_text() == text
    code, out, err = outcome_of(call("migrate", "kernel.py", "--write", folder=folder))
    assert (code, err) == (1, "nkilab: kernel.py is rewritten\n")
    assert Path("kernel.py").read_text() == text.replace("imm", "src")
    assert outcome_of(call("migrate", "kernel.py", folder=folder))[0] == 0
    code, out, err = outcome_of(call("migrate", "kernel.py", "--to", "9.9", folder=folder))
    assert (code, out) == (2, "")
    code, out, err = outcome_of(call("migrate", "kernel.py", "--json", "--diff", folder=folder))
    assert (code, json.loads(out)["kind"], err) == (
        2,
        "usage",
        "nkilab: --json and --diff are both given\n  hint: leave one of them out\n",
    )


WHOLE = """\
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit(mode="auto", platform_target="trn2")
def kernel(x, steps=[1]):
    tile = nl.ndarray(x.shape, x.dtype, buffer="sbuf")
    nisa.dma_copy(dst=tile, src=x, dge_mode=3)
    kept = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.affine_select(kept, [[-1, 3]], 1, 1, tile, -9.0, nl.greater_equal)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    count = nl.ndarray((2, 3), nl.int32, buffer=nl.sbuf)
    nisa.memset(count, 2.0)
    moved = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(moved, kept, dtype=x.dtype)
    nisa.dma_compute(out, [x, x], [1.0, 1.0], nl.add)
    nisa.dma_copy(dst=out, src=moved)
    return out


print(kernel(np.arange(6, dtype=np.float32).reshape(2, 3)).tolist())
"""
# hand: elements stay where 1 + p - i >= 0
PRINTED = "[[0.0, 1.0, -9.0], [3.0, 4.0, 5.0]]\n"


def test_a_kernel_of_0_2_runs_under_0_6_after_the_mechanical_rewrites(folder):
    Path("host.py").write_text(WHOLE)
    notice = "nkilab: notice: nisa.tensor_copy ignores the keyword dtype\n"
    assert outcome_of(call("run", "--nki", "0.2", "host.py", folder=folder)) == (0, PRINTED, notice)
    code, out, err = outcome_of(call("run", "--nki", "0.6", "host.py", folder=folder))
    assert (code, out) == (1, "")
    assert "NKI 0.6 does not accept nki.jit(platform_target=...)" in err
    assert outcome_of(call("migrate", "host.py", "--write", folder=folder))[0] == 1
    assert outcome_of(call("migrate", "host.py", folder=folder))[0] == 0
    assert outcome_of(call("run", "--nki", "0.6", "host.py", folder=folder)) == (0, PRINTED, "")


def test_a_variable_that_is_named_like_a_kernel_calls_nothing() -> None:
    text = (
        "import neuronxcc.nki as nki\n\n@nki.jit\ndef product(x):\n    return x\n\n"
        "def biased(x):\n    product = x\n    return product\n\n"
        "def called(x):\n    return x\n\n@nki.jit\ndef fused(x):\n    return called(biased(x))\n"
    )
    source = parse("k.py", text.encode())
    kernel = next(f for f in source.functions if f.name == "fused")
    assert [f.name for f in source.reached_from([kernel])] == ["fused", "called", "biased"]
