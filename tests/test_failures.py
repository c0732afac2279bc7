"""With --json a verb leaves exactly one JSON document of a published schema, whatever goes wrong."""

from __future__ import annotations

import json

import click
import pytest

from nkilab.cli import VERBS
from nkilab.command_line import Number, OneOf
from nkilab.documents import print_document
from nkilab.errors import UsageError
from nkilab.neuron_profile import command as neuron_profile
from tests.command_line import call, inside, script
from tests.test_json import KERNELS, LEDGER, check

HALVES = """
@nki.jit
def halves(x):
    rows = slice(nl.program_id(0) * 128, nl.program_id(0) * 128 + 128)
    tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[rows])
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out[rows], tile)
    return out
"""
HEAD = "def double(x, factor=2.0):\n"
BROKEN = {
    "syntax.py": "def double(:\n",
    "importing.py": "raise LookupError('at import')\n",
    "module.py": "import no_such_module_anywhere\n",
    "ending.py": "print('said at import')\nimport sys\nsys.exit(0)\n",
    "raising.py": KERNELS.replace(HEAD, f"{HEAD}    raise ValueError('mine')\n"),
    "interrupted.py": KERNELS.replace(HEAD, f"{HEAD}    raise KeyboardInterrupt\n"),
    "half.py": KERNELS.replace(
        "    nisa.tensor_scalar(dst=tile, data=tile", "    nisa.tensor_scalar(dst=tile, data=tyle"
    ),
    "bytes.py": "\0",
    "limited.py": KERNELS.replace("nl.ndarray(x.shape, dtype", "nl.ndarray((200, 4), dtype"),
}
# What is wrong: the kernel's designation, further words, the kind of the failure, the exit status.
WRONG = {
    "a missing file": ("nowhere.py:double", (), "usage", 2),
    "a file that is a folder": (".:double", (), "usage", 2),
    "no kernel of that name": ("kernels.py:dubble", (), "usage", 2),
    "no kernel named": ("kernels.py", (), "usage", 2),
    "a syntax error": ("syntax.py:double", (), "syntax", 1),
    "an exception at import": ("importing.py:double", (), "exception", 1),
    "a module that is not there": ("module.py:double", (), "exception", 1),
    "a file that ends Python": ("ending.py:double", (), "exit", 1),
    "an exception of the kernel": ("raising.py:double", (), "exception", 1),
    "a kernel that breaks off half way": ("half.py:double", (), "exception", 1),
    "a file that is no text": ("bytes.py:double", (), "syntax", 1),
    "an error of ours": ("limited.py:double", (), "kernel", 1),
    "Ctrl-C": ("interrupted.py:double", (), "interrupted", 130),
    "an --arg that is none": ("kernels.py:double", ("--arg", "f32[0,"), "usage", 2),
    "an --arg too many": ("kernels.py:double", ("--arg", "f32[4]", "--arg", "f32[4]"), "kernel", 1),
    "no such chip": ("kernels.py:double", ("--target", "trn9"), "usage", 2),
    "no such option": ("kernels.py:double", ("--no-such-option",), "usage", 2),
    "an option without its value": ("kernels.py:double", ("--kw",), "usage", 2),
}  # fmt: skip
KERNEL_VERBS = {
    "estimate": ("estimate", "KERNEL"), "profile": ("profile", "KERNEL"),
    "check": ("check", "KERNEL"), "advise": ("advise", "KERNEL"),
    "diff": ("diff", "KERNEL", "kernels.py:double"),
    "diff, the second": ("diff", "kernels.py:double", "KERNEL"),
    "compare": ("compare", "KERNEL", "card.txt"), "tune": ("tune", "KERNEL", "--space", "factors.yaml"),
}  # fmt: skip
# A search goes on where a point fails; that no point is left is the space's fault.
OF_POINTS = (
    "an exception of the kernel",
    "a kernel that breaks off half way",
    "an error of ours",
    "an --arg too many",
)
# Verbs without a kernel of the command line, used wrongly: arguments, the kind, the exit status.
OTHERS = {
    "demo": (("demo", "--output", "card.txt"), "usage", 2),
    "check, no kernel": (("check",), "usage", 2),
    "estimate, no kernel": (("estimate",), "usage", 2),
    "watch": (("watch", "nowhere.py:double"), "usage", 2),
    "einsum": (("einsum", "nowhere.yaml"), "file", 1),
    "einsum, contradictory": (("einsum", "mk,kn->mz", "--size", "M=8"), "specification", 1),
    "tune, no space": (("tune", "kernels.py:double"), "usage", 2),
    "validate": (("validate", "nowhere.yaml"), "file", 1),
    "validate, a damaged ledger": (("validate", "card.txt"), "file", 1),
    "validate, no such family": (("validate", "mine.yaml", "--family", "none"), "usage", 2),
    "validate, a kernel that raises": (("validate", "raising.yaml"), "exception", 1),
    "calibrate": (("calibrate", "--from", "nowhere.yaml", "-o", "ours.yaml"), "file", 1),
    "neuron-profile capture": (("neuron-profile", "capture", "-n", "nowhere.neff"), "file", 1),
    "neuron-profile view": (("neuron-profile", "view"), "usage", 2),
    "neuron-profile summary": (("neuron-profile", "summary", "-n", "card.txt"), "file", 1),
    "neuron-profile, no such verb": (("neuron-profile", "vieww"), "usage", 2),
    "explain": (("explain", "no_such_name"), "usage", 2),
    "migrate": (("migrate", "nowhere.py"), "usage", 2),
    "migrate, a syntax error": (("migrate", "syntax.py"), "usage", 2),
    "ops": (("ops", "nki.isa.nc_matmull"), "usage", 2),
    "init": (("init", "card.txt"), "usage", 2),
    "stubs": (("stubs", "typings", "--nki", "9.9"), "usage", 2),
    "doctor": (("doctor", "too", "many"), "usage", 2),
    "completion": (("completion", "tcsh"), "usage", 2),
    "no such verb": (("simulate",), "usage", 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    texts = {
        "kernels.py": KERNELS + HALVES,
        "mine.yaml": LEDGER,
        "card.txt": "not a profile\n",
        "factors.yaml": "schema: nkilab.space/1\nparameters: {factor: [2.0, 3.0]}\n",
        "raising.yaml": LEDGER.replace("kernels.py", "raising.py"),
    }
    for name, text in {**texts, **BROKEN}.items():
        script(folder, text, name)
    return folder


def only_document(printed, status):
    """The one document that was printed; a failure's knows the exit status."""
    document = json.loads(printed)
    if check(document) == "nkilab.error/1":
        assert document["status"] == status
    return document


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", KERNEL_VERBS)
def test_a_wrong_kernel_is_one_document(folder, capfd, verb, wrong):
    kernel, words, kind, status = WRONG[wrong]
    if verb == "tune" and wrong in OF_POINTS:
        kind, status = "usage", 2
    line = [kernel if word == "KERNEL" else word for word in KERNEL_VERBS[verb]]
    line += [] if "--arg" in words else ["--arg", "f32[128,512]"]
    assert inside(*line, "--json", *words, folder=folder) == status
    captured = capfd.readouterr()
    document = only_document(captured.out, status)
    if document["schema"] == "nkilab.error/1":
        assert document["kind"] == kind
        assert captured.err.endswith(f"{document['text']}\n")
        assert document["message"]
    elif verb in ("estimate", "profile"):
        # what ran until then, and what ended it
        assert document["notes"][0].startswith("the kernel broke off")
        assert (document["error"]["kind"], document["error"]["status"]) == (kind, status)
        assert captured.err.endswith(f"{document['error']['text']}\n")
    else:
        # what a check says of a kernel that breaks a rule is its finding
        assert (document["schema"], document["passes"], document["predicted"]) == (
            "nkilab.check/1",
            False,
            None,
        )


@pytest.mark.parametrize("case", OTHERS)
def test_wrong_use_of_any_verb_is_one_document(folder, capfd, case):
    words, kind, status = OTHERS[case]
    assert inside(*words, "--json", folder=folder) == status
    captured = capfd.readouterr()
    document = only_document(captured.out, status)
    assert (document["schema"], document["kind"]) == ("nkilab.error/1", kind)
    assert captured.err.endswith(f"{document['text']}\n")


def test_every_verb_with_json_has_a_failure_here():
    lines = [case[0] for case in OTHERS.values()] + list(KERNEL_VERBS.values())
    named = {line[0] for line in lines} | {line[1] for line in lines if line[0] == "neuron-profile"}
    assert {verb.name for verb in VERBS} - {"run"} | set(neuron_profile.commands) <= named


# Verbs on a file of the wrong content, which stands for FILE.
OF_FILES = {
    "einsum": ("einsum", "FILE"), "validate": ("validate", "FILE"), "migrate": ("migrate", "FILE"),
    "calibrate": ("calibrate", "--from", "FILE", "-o", "ours.yaml"),
    "estimate, an array": ("estimate", "kernels.py:double", "--arg", "@FILE"),
    "check, a baseline": ("check", "kernels.py:double", "--arg", "f32[128,512]", "--baseline", "FILE"),
    "compare, a profile": ("compare", "kernels.py:double", "FILE", "--arg", "f32[128,512]"),
    "diff, a program": ("diff", "kernels.py:double", "FILE.neff", "--arg", "f32[128,512]"),
    "tune, a space": ("tune", "kernels.py:double", "--space", "FILE", "--arg", "f32[128,512]"),
    "tune, an Einsum": ("tune", "FILE.yaml"),
    "neuron-profile capture": ("neuron-profile", "capture", "-n", "FILE", "-s", "x.ntff"),
    "neuron-profile view": ("neuron-profile", "view", "-n", "FILE"),
    "neuron-profile summary": ("neuron-profile", "summary", "-n", "FILE"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["nowhere", "binary", "folder"])
@pytest.mark.parametrize("verb", OF_FILES)
def test_a_file_that_cannot_be_read_is_one_document(folder, capfd, verb, name):
    """No such file, bytes that are no text, and a folder."""
    for own in (folder / "binary", folder / "binary.neff", folder / "binary.yaml"):
        own.write_bytes(bytes(range(256)))
    for own in (folder / "folder", folder / "folder.neff", folder / "folder.yaml"):
        own.mkdir(exist_ok=True)
    line = [word.replace("FILE", name) for word in OF_FILES[verb]]
    status = inside(*line, "--json", folder=folder)
    captured = capfd.readouterr()
    document = only_document(captured.out, status)
    assert (document["schema"], status in (1, 2)) == ("nkilab.error/1", True)
    assert document["kind"] in ("usage", "file", "specification")
    assert name in document["text"]
    assert captured.err.endswith(f"{document['text']}\n")


EVERY_VERB = {verb.name: (verb.name, verb) for verb in VERBS if verb.name not in ("run", "neuron-profile")}
EVERY_VERB |= {f"neuron-profile {n}": (f"neuron-profile {n}", v) for n, v in neuron_profile.commands.items()}


def least_call(verb):
    """Words that a verb takes, whatever they mean."""
    required = [parameter for parameter in verb.params if parameter.required]
    pairs = [[*parameter.opts[:1], "bash"] for parameter in required if isinstance(parameter, click.Option)]
    arguments = ["bash"] * (len(required) - len(pairs))
    return [*(word for pair in pairs for word in pair), *arguments]


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_a_bad_value_of_any_option_is_one_document(folder, capfd, verb):
    """A word for a number, another word than those listed, a value that is missing, and no such option."""
    called, command = EVERY_VERB[verb]
    typed = [
        parameter for parameter in command.params
        if isinstance(parameter, click.Option) and isinstance(parameter.type, Number | OneOf)
    ]  # fmt: skip
    wrong = [[parameter.opts[0], "bad value"] for parameter in typed] + [["--no-such-option"], ["--json=1"]]
    wrong += [[p.opts[0]] for p in command.params if isinstance(p, click.Option) and not p.is_flag][:1]
    for words in wrong:
        status = inside(*called.split(), *least_call(command), "--json", *words, folder=folder)
        captured = capfd.readouterr()
        document = only_document(captured.out, status)
        assert (document["schema"], document["kind"], status) == ("nkilab.error/1", "usage", 2), words
        assert captured.err == f"{document['text']}\n"


RAISED = {
    "interrupted": (KeyboardInterrupt(), 130), "bug": (ZeroDivisionError("ours"), 3),
    "memory": (MemoryError(), 1), "exit": (SystemExit("said"), 1), "usage": (UsageError("mine"), 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("verb", EVERY_VERB)
def test_whatever_ends_a_verb_is_one_document(folder, capfd, monkeypatch, verb, kind):
    """Wherever a verb is when it is ended, and whatever was printed by then."""
    called, command = EVERY_VERB[verb]
    error, status = RAISED[kind]

    def callback(**options):
        print("said by a module of the user's")
        raise error

    monkeypatch.setattr(command, "callback", callback)
    monkeypatch.setattr("nkilab.failures.is_bug", lambda raised: raised is error)
    assert inside(*called.split(), *least_call(command), "--json", folder=folder) == status
    document = only_document(capfd.readouterr().out, status)
    assert (document["schema"], document["kind"]) == ("nkilab.error/1", kind)


RUNS = {
    "a missing script": (("nowhere.py",), "nkilab.error/1", "usage", 2),
    "no script": ((), "nkilab.error/1", "usage", 2),
    "no such option": (("--no-such-option", "raising_host.py"), "nkilab.error/1", "usage", 2),
    "no such chip": (("--target", "trn9", "raising_host.py"), "nkilab.error/1", "usage", 2),
    "a syntax error": (("syntax.py",), "nkilab.run/1", "syntax", 1),
    "an exception": (("raising_host.py",), "nkilab.run/1", "exception", 1),
    "an error of ours": (("limited_host.py",), "nkilab.run/1", "kernel", 1),
    "Ctrl-C": (("interrupted_host.py",), "nkilab.run/1", "interrupted", 130),
}
HOST = "import numpy as np\nfrom {0} import double\ndouble(np.ones((4, 4), np.float32))\n"


@pytest.mark.parametrize("case", RUNS)
def test_run_leaves_one_document_in_its_file(folder, tmp_path, case):
    for module in ("raising", "limited", "interrupted"):
        script(folder, HOST.format(module), f"{module}_host.py")
    words, schema, kind, status = RUNS[case]
    assert inside("run", "--json", tmp_path / "run.json", *words, folder=folder) == status
    document = only_document((tmp_path / "run.json").read_text(), status)
    assert (document["schema"], document["status"]) == (schema, status)
    assert (document if schema == "nkilab.error/1" else document["error"])["kind"] == kind


def test_the_document_of_a_failed_run_never_replaces_what_the_command_reads(folder):
    text = script(folder, "print('mine')\n", "mine.py").read_text()
    for words in (("mine.py",), ("--no-such-option", "mine.py")):
        assert inside("run", "--json", "mine.py", *words, folder=folder) == 2
        assert (folder / "mine.py").read_text() == text


def test_the_document_of_an_exception_has_the_users_line_and_the_whole_text(folder, capfd):
    assert inside("estimate", "raising.py:double", "--arg", "f32[4,4]", "--json", folder=folder) == 1
    document = json.loads(capfd.readouterr().out)
    # line 9 by hand: seven lines of head, the def, the raise
    frames = [{"file": str(folder / "raising.py"), "line": 9, "function": "double"}]
    line = "    raise ValueError('mine')\n"
    text = f'Traceback (most recent call last):\n  File "{folder / "raising.py"}", line 9, in double\n{line}'
    assert document == {
        "schema": "nkilab.error/1", "kind": "exception", "status": 1, "error": "ValueError",
        "message": "mine",
        "where": "raising.py:9", "called": "", "hint": "", "source": "", "key": "", "operands": [],
        "site": {key: frames[0][key] for key in ("file", "line")}, "frames": frames,
        "text": f"{text}ValueError: mine",
    }  # fmt: skip


def test_the_document_of_an_error_of_ours_has_its_parts(folder, capfd):
    assert inside("profile", "limited.py:double", "--arg", "f32[4,4]", "--json", folder=folder) == 1
    document = json.loads(capfd.readouterr().out)
    parts = ("error", "where", "called", "message", "hint", "source", "key")
    assert [document[part] for part in parts] == [
        "LimitError", "limited.py:9", "ndarray",
        "number of partitions 200 exceed architecture limitation of 128",
        "split the partition axis into tiles of 128", "trn1 architecture guide, SBUF",
        "err_num_partition_exceed_arch_limit",
    ]  # fmt: skip
    assert document["site"] == {"file": str(folder / "limited.py"), "line": 9}


def test_a_bug_of_ours_is_a_document_too(folder, capfd, monkeypatch):
    monkeypatch.setattr("nkilab.explain._tables", lambda: [None])
    assert inside("explain", "exp", "--json", folder=folder) == 3
    captured = capfd.readouterr()
    assert json.loads(captured.out)["kind"] == "bug"
    assert captured.err.endswith("nkilab: this is a bug of nkilab; please report it with the lines above\n")


@pytest.mark.parametrize("wrong", ["a syntax error", "a file that ends Python", "no such option", "Ctrl-C"])
def test_a_process_of_its_own_prints_the_document_alone(folder, wrong):
    kernel, words, kind, status = WRONG[wrong]
    done = call("estimate", kernel, "--arg", "f32[4,4]", *words, "--json", folder=folder)
    assert done.returncode == status
    assert json.loads(done.stdout)["kind"] == kind
    assert "Traceback" not in done.stderr


def test_a_check_says_what_an_estimate_predicts(folder, capfd):
    for name, grid in (("double", ()), ("halves", ("--grid", "2"))):
        line = (f"kernels.py:{name}", "--arg", "f32[256,512]" if grid else "f32[128,512]", *grid, "--json")
        assert inside("estimate", *line, folder=folder) == 0
        predicted = json.loads(capfd.readouterr().out)
        assert inside("check", *line, folder=folder) == 0
        keys = ("latency_us", "interval_us", "bound", "model_version")
        assert json.loads(capfd.readouterr().out)["predicted"] == {key: predicted[key] for key in keys}


def test_a_number_that_is_none_is_null_in_a_document(capfd):
    print_document({"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(capfd.readouterr().out) == {"a": None, "b": [None, 1.5]}
