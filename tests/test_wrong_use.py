"""Whatever a user does wrong ends in a short message of its own, never in a traceback of ours, and in the right status."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from nkilab.cli import main
from nkilab.errors import did_you_mean, nearest
from tests.program import SOURCE, call, inside, script
from tests.test_json import KERNELS, LEDGER

ARG = ("--arg", "f32[128,512]")
OF = ("estimate", "kernels.py:double", *ARG)
FAILING = """\
import nki

@nki.jit
def kernel(x):
    return 1 / 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    held = tmp_path_factory.mktemp("wrong")
    texts = {
        "kernels.py": KERNELS.replace('print("the user\'s module prints")\n', ""), "mine.yaml": LEDGER,
        "broken.py": "def f(:\n", "needs.py": "import not_there\n", "failing.py": FAILING, "bad.yaml": "a: [\n",
        "fails.py": "raise RuntimeError('mine')\n",
    }  # fmt: skip
    for name, text in texts.items():
        script(held, text, name)
    for name in ("binary.py", "binary.yaml", "binary.npy"):
        (held / name).write_bytes(bytes(range(256)))
    for name in ("folder", "folder.py", "folder.yaml"):
        (held / name).mkdir()
    return held


# Arguments, exit status, and what the message begins with; a hint follows after "|".
CASES = [
    ("simulate kernels.py", 2, "nkilab: there is no verb simulate|did you mean run?"),
    ("estimat kernels.py", 2, "nkilab: there is no verb estimat|did you mean estimate?"),
    ("help", 2, "nkilab: there is no verb help|nkilab --help lists the verbs"),
    ("zzz", 2, "nkilab: there is no verb zzz|the verbs are demo, run, "),
    ("doctor --jsn", 2, "nkilab doctor: there is no option --jsn|did you mean --json?"),
    ("run --chek x.py", 2, "nkilab run: there is no option --chek|did you mean --check?"),
    ("--verbos", 2, "nkilab: there is no option --verbos|"),
    ("doctor more", 2, "nkilab doctor: more is more than it takes|nkilab doctor --help shows how"),
    ("doctor --json=1", 2, "nkilab doctor: --json takes no value|nkilab doctor --help shows how"),
    ("estimate --arg", 2, "nkilab estimate: --arg is given no value|nkilab estimate --help shows how"),
    ("run", 2, "nkilab run: SCRIPT is not given|nkilab run --help shows how"),
    ("calibrate -o x.yaml", 2, "nkilab calibrate: --from LEDGER.yaml is not given|"),
    ("completion bsh", 2, "nkilab: SHELL is bsh; it is one of bash, zsh, fish|did you mean bash?"),
    ("einsum x --dialect nky", 2, "nkilab: --dialect is nky; it is one of nki, neuronxcc|did you mean nki?"),
    ("tune x --trials 0", 2, "nkilab: --trials is 0; it is a whole number of at least 1|"),
    ("tune x --seconds nan", 2, "nkilab: --seconds is nan; it is a number of at least 0|"),
    ("run --ranks two x.py", 2, "nkilab: --ranks is two; it is a whole number of at least 0|"),
    ("run --backend gpu x.py", 2, "nkilab: --backend is gpu; it is one of sim, vendor|"),
    ("run --backend vendor fails.py", 2, "nkilab: --backend is vendor; neither neuronxcc nor nki is installed|"),
    ("run --backend vendor --check fails.py", 2, "nkilab: --backend vendor and --check are both given; only "),
    ("run --ranks 2 --json x.json fails.py", 2, "nkilab: --ranks and --json are both given|leave one of them out"),
    ("estimate kernels.py", 2, "nkilab: kernels.py names no kernel|write kernels.py:KERNEL"),
    ("estimate kernels.py:doubel ARG", 2, "nkilab: kernels.py has no doubel|did you mean double?"),
    ("estimate kernels.py:x ARG", 2, "nkilab: kernels.py has no x|its kernels are double, holes, slow"),
    ("estimate nowhere.py:x ARG", 2, "nkilab: nowhere.py is no file|pass FILE.py:KERNEL"),
    ("estimate folder.py:x ARG", 2, "nkilab: folder.py is no file|pass FILE.py:KERNEL"),
    ("estimate binary.py:x ARG", 1, '  File "binary.py", line 1\nSyntaxError: this is no Python source'),
    ("estimate broken.py:x ARG", 1, '  File "'),
    ("estimate needs.py:x ARG", 1, "Traceback "),
    ("estimate failing.py:kernel ARG", 1, "Traceback "),
    ("estimate kernels.py:double", 1, "kernels.py:6: double: the arguments do not fit the kernel: missing a "
     "required argument: 'x'|double takes x, factor"),
    ("OF --kw factr=2", 1, "kernels.py:6: double: the arguments do not fit the kernel: got an unexpected keyword "
     "argument 'factr'|did you mean factor?"),
    ("OF --kw factor", 2, "nkilab: --kw is 'factor'; write name=value|"),
    ("OF --target trn9", 2, "nkilab: target is trn9; it is one of trn1, "),
    ("OF --target trn", 2, "nkilab: target is trn; it is one of trn1, trn2, trn3, inf2, gen2, gen3, gen4|did you "
     "mean trn1?"),
    ("OF --target no.yaml", 1, "nkilab: no.yaml cannot be read: no such file or directory|"),
    ("OF --target folder.yaml", 1, "nkilab: folder.yaml cannot be read: is a directory|"),
    ("OF --target binary.yaml", 1, "nkilab: binary.yaml is no text|"),
    ("OF --target bad.yaml", 1, "bad.yaml:2: this is no YAML: "),
    ("OF --nki beta", 2, "nkilab: NKI version is beta; it is one of beta1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7|did you "
     "mean beta1?"),
    ("OF --grid 0", 2, "nkilab: --grid is '0'; write whole numbers of at least 1, as in 4,8|"),
    ("estimate kernels.py:double --arg 128x512", 2, "nkilab: --arg is '128x512'; write DTYPE[N,...], as in "),
    ("estimate kernels.py:double --arg flot32[8]", 2, "nkilab: --arg is 'flot32[8]': dtype is flot32; it is one "),
    ("estimate kernels.py:double --arg @no.npy", 2, "nkilab: no.npy cannot be read: no such file or directory|save"),
    ("estimate kernels.py:double --arg @folder", 2, "nkilab: folder cannot be read: is a directory|save"),
    ("estimate kernels.py:double --arg @binary.npy", 1, "nkilab: binary.npy holds no array|save it with numpy.save"),
    ("profile kernels.py:double ARG --html folder", 1, "nkilab: folder cannot be written: is a directory|"),
    ("profile kernels.py:double ARG --html no/f.html", 1, "nkilab: no/f.html cannot be written: no such file"),
    ("profile kernels.py:double ARG --what-if dma_bandwith=2x", 2, "nkilab: trn2 has no constant dma_bandwith|did "
     "you mean dma_bandwidth?"),
    ("diff no.neff no.neff", 1, "nkilab: no.neff cannot be read: no such file or directory|"),
    ("check", 2, "nkilab: no kernel is named|write nkilab check FILE.py:KERNEL"),
    ("check kernels.py:double ARG --sarif folder", 1, "nkilab: folder cannot be written: is a directory|"),
    ("einsum no.yaml", 1, "nkilab: no.yaml cannot be read: no such file or directory|"),
    ("einsum folder", 1, "nkilab: folder cannot be read: is a directory|"),
    ("einsum binary.yaml", 1, "nkilab: binary.yaml is no text|"),
    ("einsum mk,kn->mn --size M=x", 2, "nkilab: --size M is x; it is a whole number of at least 1|"),
    ("tune kernels.py:double ARG", 2, "nkilab: --space is missing|write a space as docs/tune.md shows"),
    ("tune kernels.py:double ARG --space no.yaml", 1, "nkilab: no.yaml cannot be read: no such file or directory|"),
    ("validate folder", 1, "nkilab: folder cannot be read: is a directory|"),
    ("validate mine.yaml --family doublin_", 2, "nkilab: --family is doublin_; the ledger has doubling|did you mean "
     "doubling?"),
    ("calibrate --from no.yaml -o x.yaml", 1, "nkilab: no.yaml cannot be read: no such file or directory|"),
    ("calibrate --from mine.yaml -o folder", 2, "nkilab: -o is folder; a machine file ends in .yaml|name a file"),
    ("neuron-profile captur", 2, "neuron-profile: there is no verb captur|did you mean capture?"),
    ("neuron-profile capture", 2, "neuron-profile capture: --neff FILE.neff is not given|"),
    ("neuron-profile view -n folder", 1, "neuron-profile: folder cannot be read: is a directory|"),
    ("explain nc_matmull", 2, "nkilab: there is no page of nc_matmull|did you mean nc_matmul or nc_matmul_mx?"),
    ("explain mfu_estimatd_percent", 2, "nkilab: there is no page of mfu_estimatd_percent|did you mean mfu_estimated_"),
    ("explain race-two-corez", 2, "nkilab: there is no page of race-two-corez|did you mean race-two-cores?"),
    ("migrate folder", 2, "nkilab: folder is no file|pass the path of a Python file"),
    ("migrate broken.py", 2, "nkilab: broken.py is no Python: line 1: invalid syntax|pass a file that Python compiles"),
    ("ops nki.isa.nc_matmull", 2, "nkilab: no version of NKI has nki.isa.nc_matmull|did you mean nisa.nc_matmul or "),
    ("init kernels.py", 2, "nkilab: kernels.py is a file|name a folder that is not there yet"),
    ("init kernels.py/x", 2, "nkilab: kernels.py/x cannot be made: not a directory|name another folder"),
    ("init .", 2, "nkilab: . is not empty: it holds "),
    ("stubs kernels.py", 2, "nkilab: kernels.py is a file|name a folder for stubs alone, such as typings"),
    ("demo --output kernels.py", 2, "nkilab: kernels.py cannot be made: file exists|name another folder with "),
    ("run folder", 2, "nkilab: folder is no file|pass the path of a Python script"),
    ("run binary.py", 1, '  File "binary.py", line 1\nSyntaxError: this is no Python source: it holds null bytes\n'),
    ("run --json folder fails.py", 2, "nkilab: folder is a folder; a file is to be written there|name a file in it"),
    ("run --json no/x.json fails.py", 2, "nkilab: the folder of no/x.json does not exist|"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "status", "expected"), CASES, ids=[words for words, _, _ in CASES])
def test_a_wrong_use_is_told_in_one_message(folder, capfd, words, status, expected):
    before = sorted(path.name for path in folder.iterdir())
    given = [part for word in words.split() for part in {"ARG": ARG, "OF": OF}.get(word, (word,))]
    assert inside(*given, folder=folder) == status
    printed = capfd.readouterr()
    problem, bar, hint = expected.partition("|")
    start = f"{problem}\n  hint: {hint}" if hint else f"{problem}\n" if bar else problem
    if problem.startswith("nkilab: ") or hint:
        assert printed.err.startswith(start) or (bar and not hint and printed.err.startswith(problem)), (
            printed.err
        )
    else:
        assert printed.err.startswith(problem)
    assert printed.out == ""
    assert f"{SOURCE}{os.sep}nkilab{os.sep}" not in printed.err
    assert "this is a bug" not in printed.err
    assert len(printed.err.splitlines()) <= 8
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_module_that_is_missing_is_told_with_the_environment(folder, capfd):
    assert inside("run", "needs.py", folder=folder) == 1
    told = capfd.readouterr().err.splitlines()
    assert told[1:] == [
        '  File "needs.py", line 1, in <module>',
        "    import not_there",
        "ModuleNotFoundError: No module named 'not_there'",
        f"nkilab: the environment of {sys.executable} has no module not_there",
    ]


def test_a_fault_of_ours_is_told_as_one(folder, capfd, monkeypatch):
    monkeypatch.setattr("nkilab.doctor.report", lambda: {}["nothing"])
    assert inside("doctor", folder=folder) == 3
    told = capfd.readouterr().err
    assert told.startswith("Traceback ")
    assert told.endswith("\nnkilab: this is a bug of nkilab; please report it with the lines above\n")


def piped(folder, *words, **streams):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen(
        [sys.executable, "-m", "nkilab", *words], cwd=folder, env=environment, text=True, stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **streams},
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", [("ops",), ("explain", "nc_matmul"), ("run", "many.py")], ids=lambda w: w[0]
)
def test_a_reader_that_has_enough_ends_it_quietly(folder, words):
    if words[0] == "run":
        script(folder, "for number in range(200_000):\n    print(number)\n", "many.py")
    process = piped(folder, *words)
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (141, "")
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is full is one of Linux")
def test_output_that_cannot_be_written_is_told(folder):
    with open("/dev/full", "w") as full:
        process = piped(folder, "doctor", stdout=full)
        assert process.wait(60) == 1
    assert process.stderr.read() == "nkilab: standard output cannot be used: no space left on device\n"
    process.stderr.close()


def test_an_encoding_without_our_characters_is_told(folder):
    done = call(*OF, folder=folder, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stderr == (
        "nkilab: standard output takes no '\\u2581': its encoding is ascii\n  hint: set PYTHONIOENCODING=utf-8\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interruption_is_one_line(folder):
    script(folder, KERNELS.replace('print("the user\'s module prints")', "open('begun', 'w')\nimport time\ntime.sleep(60)"),
           "sleeps.py")  # fmt: skip
    process = piped(folder, "estimate", "sleeps.py:double", *ARG)
    while not (folder / "begun").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stdout.read() == ""
    assert len(process.stderr.read().splitlines()) <= 1
    process.stdout.close()
    process.stderr.close()


def test_the_nearest_of_equals_is_the_first_whatever_its_capitals():
    assert nearest("TRN", ["trn2", "trn1", "trn3"]) == ["trn2"]
    assert nearest("nc_matmull", ["nc_matmul", "nc_matmul_mx", "iota"], 2) == ["nc_matmul", "nc_matmul_mx"]
    assert did_you_mean("zzz", ["trn1"], "else") == "else"


@pytest.mark.parametrize("verb", main.commands.values(), ids=list(main.commands))
def test_every_verb_shows_examples_that_it_takes(verb, capfd):
    if verb.name == "neuron-profile":
        return
    assert verb.examples
    for line in verb.examples:
        assert line in verb.get_help(verb.make_context(verb.name, [], resilient_parsing=True))
        command = _words(line)
        assert command[0] in ("nkilab", "cd", "eval"), line
        if command[0] == "nkilab":
            # raises where an option is none, or an argument is missing
            main.commands[command[1]].make_context(command[1], command[2:])


def _words(line):
    return shlex.split(line.partition(">")[0].partition("#")[0] if "completion" in line else line)
