"""What a ledger may hold, and how each fault of one is told."""

from __future__ import annotations

import pytest

from nkilab.errors import FileError
from nkilab.ledger import ledger_rows
from nkilab.ledger.row import Call

HEAD = """\
schema: nkilab.ledger/1
sources:
  own: {ref: our lab, link: https://example.org}
groups:
  - family: sums
    kernel: adding.add_columns
    chip: trn2
    dialect: nki 0.6
    trust: B
    split: judge
    noise: 0.02
    source: own
    rows:
"""
ROW = "      - {id: one, args: ['f32[256]', 'f32[256]', 2], measured: {profile_us: 20, dma_transfers: 3}}\n"


@pytest.fixture
def read(tmp_path):
    def run(text: str):
        path = tmp_path / "lab.yaml"
        path.write_text(text)
        return ledger_rows(path)

    return run


def message_of(read, text: str) -> str:
    with pytest.raises(FileError) as raised:
        read(text)
    return str(raised.value)


def test_a_row_has_what_its_group_says(read):
    (row,) = read(HEAD + ROW)
    assert (row.id, row.family, row.chip, row.noise, row.line) == ("one", "sums", "trn2", 0.02, 14)
    assert row.calls == (Call("adding.add_columns", ("f32[256]", "f32[256]", 2)),)
    assert row.measured == {"profile_us": 20, "dma_transfers": 3}
    assert (row.metric, row.value, row.kind) == ("profile_us", 20, "kernel")
    assert (row.source.ref, row.source.link) == ("our lab", "https://example.org")
    # built-in types, without the places that the reader keeps
    assert [type(v) for v in (row.id, row.noise, row.calls[0].args[2])] == [str, float, int]


def test_what_a_row_says_goes_before_what_its_group_says(read):
    (row,) = read(HEAD + ROW.replace("id: one", "id: one, chip: trn1, split: fit"))
    assert (row.chip, row.split) == ("trn1", "fit")


def test_calls_of_a_row_replace_the_arguments_of_its_group(read):
    text = HEAD.replace("    rows:", "    args: ['f32[2]']\n    rows:")
    row = "      - {id: one, calls: [['f32[4]'], ['f32[8]']], measured: {device_us: 2.5}}\n"
    assert [call.args for call in read(text + row)[0].calls] == [("f32[4]",), ("f32[8]",)]


def test_a_call_may_name_a_kernel_of_its_own(read):
    calls = "[['f32[4]'], {kernel: perceptron.gelu, args: ['f32[8]']}]"
    (row,) = read(HEAD + f"      - {{id: one, calls: {calls}, measured: {{device_us: 2.5}}}}\n")
    assert row.calls == (Call("adding.add_columns", ("f32[4]",)), Call("perceptron.gelu", ("f32[8]",)))


FORMAT = "\n  hint: see docs/ledger.md for the format"
QUANTITIES = (
    "quantities are window_us, nc_latency_us, device_us, profile_us, host_latency_us, host_call_us, "
    "collective_us, launch_us, repeat_us, instruction_ns, first_instruction_ns, interval_ns, transfer_ns, "
    "descriptor_ns, tensor_active_us, vector_active_us, scalar_active_us, gpsimd_active_us, "
    "dma_active_us, tensor_active_percent, vector_active_percent, scalar_active_percent, "
    "gpsimd_active_percent, dma_active_percent, dma_packet_us, dma_transfers, dma_bytes, hbm_read_bytes, "
    "hbm_write_bytes, matmuls, spill_save_bytes, spill_reload_bytes, sbuf_read_bytes, sbuf_write_bytes, "
    "psum_read_bytes, psum_write_bytes, hardware_flops, transpose_flops"
)
KEYS = (
    "it has args, calls, chip, contradicts, dialect, family, hardware, id, kernel, keywords, kind, label, "
    "measured, noise, notes, options, profile, reason, source, split, trust, units"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: one, ", "", f"lab.yaml:14: the row has no id{FORMAT}"),
        ("id: one", "id: one, colour: red", f"lab.yaml:14: a row has no colour\n  hint: {KEYS}"),
        ("args: ['f32[256]', 'f32[256]', 2]", "notes: x",
         f"lab.yaml:14: a row has args, or calls with the args of each{FORMAT}"),
        ("args: ['f32[256]', 'f32[256]', 2]", "args: 3", f"lab.yaml:14: args is 3; it must be a "
                                                         f"list{FORMAT}"),
        ("{profile_us: 20, dma_transfers: 3}", "7",
         f"lab.yaml:14: measured is 7; it must be names and values{FORMAT}"),
        ("{profile_us: 20, dma_transfers: 3}", "{}",
         f"lab.yaml:14: measured is empty; a row measures something{FORMAT}"),
        ("profile_us: 20", "seconds: 20", f"lab.yaml:14: seconds is no quantity\n  hint: {QUANTITIES}"),
        ("profile_us: 20", "profile_us: -1",
         f"lab.yaml:14: profile_us is -1; it must be a number above 0{FORMAT}"),
        ("profile_us: 20", "profile_us: long",
         f"lab.yaml:14: profile_us is 'long'; it must be a number above 0{FORMAT}"),
        ("id: one", "id: one, options: {constants: {dma_start: 7}}",
         "lab.yaml:14: dma_start is no constant of trn2\n  hint: did you mean dma_start_ns?"),
        ("id: one", "id: one, options: {constants: {dma_start_ns: .nan}}",
         f"lab.yaml:14: dma_start_ns is nan; it must be a number of at least 0{FORMAT}"),
        ("id: one", "id: one, options: {constants: {dma_engines: 0}}",
         f"lab.yaml:14: dma_engines is 0; it must be a whole number above 0{FORMAT}"),
        ("id: one", "id: one, options: {constants: 7}",
         f"lab.yaml:14: constants is 7; it must hold names and values{FORMAT}"),
        ("id: one", "id: one, split: both",
         f"lab.yaml:14: split is 'both'; it must be one of fit, judge, context{FORMAT}"),
        ("id: one", "id: one, trust: E", f"lab.yaml:14: trust is 'E'; it must be one of A, B, C, D{FORMAT}"),
        ("id: one", "id: one, source: him", f"lab.yaml:14: source is 'him'; the file has own{FORMAT}"),
        ("id: one", "id: one, chip: gpu",
         "lab.yaml:14: target is gpu; "
         "it must be one of trn1, trn2, trn3, inf2, trn1n, trn3pre, gen2, gen3, gen4"
         + FORMAT),
        ("id: one", "id: 7", f"lab.yaml:14: id is 7; it must be a text{FORMAT}"),
        ("noise: 0.02", "noise: .nan",
         f"lab.yaml:14: noise is nan; it must be a number of at least 0{FORMAT}"),
        ("noise: 0.02", "noise: -1", f"lab.yaml:14: noise is -1; it must be a number of at least 0{FORMAT}"),
        ("noise: 0.02", "noise: low", f"lab.yaml:14: noise is 'low'; it must be a number{FORMAT}"),
        ("args: ['f32[256]', 'f32[256]', 2]", "calls: [1]",
         f"lab.yaml:14: an entry of calls is neither a list of args nor kernel and args{FORMAT}"),
        ("  own: {ref: our lab, link: https://example.org}", "  - own",
         f"lab.yaml:1: sources is ['own']; it must hold a source by each name{FORMAT}"),
        ("{ref: our lab, link", "{page: our lab, link",
         f"lab.yaml:3: source own has ref, and may have commit and link{FORMAT}"),
        ("rows:\n" + ROW, "rows: []\n",
         f"lab.yaml:5: rows is []; it must be a list with at least one entry{FORMAT}"),
        (ROW, ROW + ROW, f"lab.yaml:15: id one stands twice{FORMAT}"),
        (ROW, "      - word\n",
         f"lab.yaml:14: an entry of rows is 'word'; it must hold names and values{FORMAT}"),
        ("schema: nkilab.ledger/1", "schema: [",
         "lab.yaml:3: this is no YAML: expected ',' or ']', but got ':'" + FORMAT),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_line(read, old, new, message):
    text = HEAD + ROW
    assert old in text
    assert message_of(read, text.replace(old, new, 1)) == message


def test_a_file_that_is_no_ledger_is_refused(read, tmp_path):
    path = tmp_path / "lab.yaml"
    assert message_of(read, "a: 1\n") == (
        f"{path.name}:1: the schema is None; a ledger has 'nkilab.ledger/1'\n"
        "  hint: see docs/ledger.md for the format"
    )
    with pytest.raises(FileError) as raised:
        ledger_rows(tmp_path / "none.yaml")
    assert str(raised.value) == f"{tmp_path / 'none.yaml'} cannot be read: no such file or directory"


def test_a_file_without_text_is_refused(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError) as raised:
        ledger_rows(path)
    assert str(raised.value) == f"{path} is no text"
