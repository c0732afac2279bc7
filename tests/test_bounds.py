"""What users write or ask for is bounded: sizes, counts, depth, digits, and what of it reaches a terminal."""

from __future__ import annotations

import time

import pytest

import nkilab
from nkilab.errors import NkilabError, printable, shown
from tests.command_line import call, inside, outcome_of

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a[0:128, 0:512])
    nisa.dma_copy(dst=out[0:128, 0:512], src=t)
    return out
"""
LARGE = "f32[1000000,1000000]"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "k.py").write_text(KERNEL, "utf-8")
    return tmp_path


def test_arrays_that_no_memory_holds_are_refused_with_their_bytes(folder):
    # 10**12 elements of 4 bytes are 3,725.3 GiB
    status, output, error = outcome_of(call("check", "k.py:kernel", "--arg", LARGE, folder=folder))
    assert (status, output) == (1, "")
    assert error.startswith(
        "nkilab: the elements of float32[1000000, 1000000] need 3,725.3 GiB; this computer has "
    )
    assert error.endswith(" GiB of memory\n  hint: nkilab estimate needs none: it computes no elements\n")


def test_an_estimate_of_arrays_that_no_memory_holds_needs_none(folder):
    status, output, _ = outcome_of(call("estimate", "k.py:kernel", "--arg", LARGE, folder=folder))
    assert status == 0
    assert output.startswith("kernel on trn2: ")


def test_a_tensor_that_no_memory_holds_is_refused_in_the_kernel(folder):
    with nkilab.activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def large():
            out = nl.ndarray((2**20, 2**20), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=out[0:128, 0:512], src=tile)
            return out

        with pytest.raises(NkilabError, match=r"float32\[1048576, 1048576\] need 4,096\.0 GiB"):
            large()


COUNTS = [
    (("run", "--ranks", "0", "k.py"), "nkilab: --ranks is 0; it must be a whole number of at least 1\n"),
    (
        ("run", "--ranks", "100000", "k.py"),
        "nkilab: --ranks is 100000; it must be at most 1024: each rank runs SCRIPT on a thread of its own\n",
    ),
    (
        ("estimate", "k.py:kernel", "--arg", "f32[128,512]", "--ranks", "100000"),
        "nkilab: --ranks is 100000; it must be at most 65536: no cluster has more\n",
    ),
    (
        ("check", "k.py:kernel", "--arg", "f32[128,512]", "--replay", "10001"),
        "nkilab: --replay is 10001; it must be at most 10000: each computes the whole kernel again\n",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), COUNTS, ids=[" ".join(a[:3]) for a, _ in COUNTS])
def test_a_count_that_never_ends_is_refused_with_its_reason(folder, arguments, text):
    assert outcome_of(call(*arguments, folder=folder)) == (2, "", text)


DEEP = "{}:{}: lists and mappings stand in each other more than 32 deep\n"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
FILES = {
    "flow.yaml": ("a: " + "[" * 5000 + "]" * 5000, DEEP.format("flow.yaml", 1)),
    "maps.yaml": ("a: " + "{a: " * 5000 + "1" + "}" * 5000, DEEP.format("maps.yaml", 1)),
    "block.yaml": ("\n".join("  " * i + f"k{i}:" for i in range(400)), DEEP.format("block.yaml", 33)),
    "bomb.yaml": (BOMB, "bomb.yaml:2: the alias *a stands below an anchor; write the value out\n"),
    "many.yaml": ("a: &a 1\nb: [" + "*a, " * 1001 + "]\n", "many.yaml:2: there are more than 1000 aliases\n"),
    "digits.yaml": (
        "a: " + "9" * 5000,
        "digits.yaml:1: a value cannot be read: Exceeds the limit (4300 digits) for integer string "
        "conversion: value has 5000 digits\n",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_yaml_that_nests_or_repeats_too_much_is_refused_at_once(folder, name, capsys):
    text, message = FILES[name]
    (folder / name).write_text(text, "utf-8")
    begun = time.process_time()
    for arguments, hint in (
        (("validate", name), "see docs/ledger.md for the format"),
        (
            ("tune", "k.py:kernel", "--arg", "f32[128,512]", "--space", name),
            "see docs/tune.md for the format",
        ),
    ):
        assert inside(*arguments, folder=folder) == 1
        assert capsys.readouterr() == ("", f"{message}  hint: {hint}\n")
    # the readers of a whole tree take 30 s of a core for the first of them
    assert time.process_time() - begun < 10


def test_an_anchor_that_is_referred_to_plainly_is_read(folder):
    (folder / "space.yaml").write_text("base: &base [1, 2]\nagain: *base\n", "utf-8")
    _, _, error = outcome_of(call("validate", "space.yaml", folder=folder))
    assert "alias" not in error


def test_a_value_in_a_message_is_short():
    assert shown([1, 2]) == "[1, 2]"
    assert shown("x" * 100) == "of type str"
    assert shown(10**5000) == "a whole number of 5001 digits"
    assert shown([10**5000]) == "of type list"
    assert len(str(NkilabError("x" * 1_000_000))) < 3000


EVIL, SEEN = "\x1b]0;E\x07\u202e", "\\x1b]0;E\\x07\\u202e"
# characters that a terminal obeys, but for a newline and tab
RAW = {
    *map(chr, (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
}


def test_control_characters_are_written_as_escapes():
    assert printable(f"a{EVIL}b\tc\nd é 漢") == f"a{SEEN}b\tc\nd é 漢"
    assert printable("\udc80") == "\\udc80"
    assert str(NkilabError(EVIL, hint=EVIL).located(EVIL, EVIL, [EVIL])).count(SEEN) == 5


EVIL_KERNEL = KERNEL.replace("buffer=nl.sbuf)", f"buffer=nl.sbuf, name='t{EVIL}')  # {EVIL}").replace(
    "src=t)", f"src=t)  # {EVIL}"
)
FILE = f"k{EVIL}.py"
WHOLE = (f"{FILE}:kernel", "--arg", "f32[128,512]")
ASKED = [
    ("estimate", *WHOLE),
    ("estimate", *WHOLE, "--target", "trn1,trn2"),
    ("profile", *WHOLE, "--text"),
    ("profile", *WHOLE, "--html", f"o{EVIL}.html"),
    ("check", *WHOLE),
    ("check", *WHOLE, "--numerics", "--replay", "1"),
    ("check", f"{FILE}:wrong", "--arg", "f32[128,512]"),
    ("run", FILE),
    ("run", f"none{EVIL}.py"),
    ("estimate", f"{FILE}:none{EVIL}"),
    ("estimate", f"{FILE}:kernel", "--arg", EVIL),
    ("estimate", f"{FILE}:kernel", "--arg", f"@{EVIL}.npy"),
    ("estimate", *WHOLE, "--kw", EVIL),
    ("estimate", *WHOLE, "--target", EVIL),
    ("estimate", *WHOLE, "--nki", EVIL),
    ("estimate", *WHOLE, "--grid", EVIL),
    ("estimate", *WHOLE, "--trips", EVIL),
    ("estimate", *WHOLE, f"--{EVIL}"),
    (EVIL,),
    ("explain", EVIL),
    ("einsum", EVIL),
    ("einsum", f"y{EVIL}.yaml"),
    ("tune", *WHOLE, "--space", f"y{EVIL}.yaml"),
    ("validate", f"y{EVIL}.yaml"),
    ("calibrate", "--from", f"y{EVIL}.yaml", "-o", f"m{EVIL}.yaml"),
    ("diff", FILE, EVIL),
    ("migrate", FILE),
    ("init", f"p{EVIL}"),
    ("stubs", f"s{EVIL}"),
    ("neuron-profile", "view", "-n", EVIL),
    ("demo", EVIL),
]


@pytest.mark.parametrize("arguments", ASKED, ids=[printable(" ".join(a))[:60] for a in ASKED])
def test_text_from_outside_moves_no_terminal(folder, arguments):
    wrong = "\n\n@nki.jit\ndef wrong(a):\n    nisa.tensor_copy(dst=a, src=a)  # {}\n    return a\n"
    (folder / FILE).write_text(EVIL_KERNEL + wrong.format(EVIL), "utf-8")
    (folder / f"y{EVIL}.yaml").write_text("a\u202e: b\u202e\n", "utf-8")
    done = call(*arguments, folder=folder)
    assert "Traceback" not in done.stderr
    assert not RAW & set(done.stdout + done.stderr)
