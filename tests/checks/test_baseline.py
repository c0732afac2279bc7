"""A baseline holds findings that are known; a check with it tells new ones alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import call, outcome_of, script

HEAD = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def holes(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[0:64], x[0:64])
"""
STORE = "    nisa.dma_copy(out, tile)\n"
END = "    return out\n"
OTHER = (HEAD + STORE + END).partition("@nki.jit")[2].replace("holes", "more_holes")
ARG = ("--arg", "f32[128,512]")
FINE = "holes on trn2: 0 errors, 0 warnings, 1 known\n"


def written(folder: Path, text: str = HEAD + STORE + END) -> Path:
    path = script(folder, text, "kernels.py")
    done = call("check", f"{path}:holes", *ARG, "--write-baseline", folder / "known.json")
    assert (done.returncode, done.stderr) == (0, "")
    return path


def again(folder: Path, text: str) -> tuple[int, str, str]:
    path = script(folder, text, "kernels.py")
    return outcome_of(call("check", f"{path}:holes", *ARG, "--baseline", folder / "known.json"))


def test_a_known_finding_is_not_told_again(tmp_path: Path) -> None:
    written(tmp_path)
    assert again(tmp_path, HEAD + STORE + END) == (0, FINE, "")


def test_a_known_finding_stays_known_where_lines_move(tmp_path: Path) -> None:
    written(tmp_path)
    assert again(tmp_path, "# a line\n\n" + HEAD + "\n" + STORE + END) == (0, FINE, "")


def test_a_kernel_that_is_renamed_keeps_its_findings(tmp_path: Path) -> None:
    written(tmp_path)
    path = script(tmp_path, (HEAD + STORE + END).replace("holes", "gaps"), "kernels.py")
    done = outcome_of(call("check", f"{path}:gaps", *ARG, "--baseline", tmp_path / "known.json"))
    assert done == (0, FINE.replace("holes", "gaps"), "")


def test_a_kernel_beside_the_known_one_has_findings_of_its_own(tmp_path: Path) -> None:
    written(tmp_path)
    path = script(tmp_path, HEAD + STORE + END + "\n\n@nki.jit" + OTHER, "kernels.py")
    known = ("--baseline", tmp_path / "known.json")
    assert call("check", f"{path}:more_holes", *ARG, *known).returncode == 1


def test_what_is_no_longer_found_is_told(tmp_path: Path) -> None:
    written(tmp_path)
    status, text, _ = again(tmp_path, HEAD.replace("0:64", "0:128") + STORE + END)
    assert (status, text) == (
        0, "note: no longer found: 1 of the baseline, which --write-baseline leaves out\n"
        "holes on trn2: 0 errors, 0 warnings\n",
    )  # fmt: skip


def test_a_second_finding_of_the_same_text_is_new(tmp_path: Path) -> None:
    written(tmp_path)
    fill = "".join(line for line in HEAD.splitlines(keepends=True) if " tile" in line or "(tile" in line)
    status, text, _ = again(tmp_path, HEAD + STORE + fill + STORE + END)
    assert status == 1
    assert text.startswith(
        "kernels.py:14: error: dma_copy reads [128, 512] of tile: float32[128, 512] in sbuf"
    )
    assert text.endswith("holes on trn2: 1 error, 0 warnings, 1 known\n")


def test_a_finding_on_another_text_is_new(tmp_path: Path) -> None:
    written(tmp_path)
    assert again(tmp_path, HEAD + "    nisa.dma_copy(src=tile, dst=out)\n" + END)[0] == 1


def test_a_baseline_is_the_same_wherever_the_project_lies(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    written(first)
    (second / "known.json").write_text((first / "known.json").read_text())
    assert again(second, HEAD + STORE + END) == (0, FINE, "")


def test_writing_a_baseline_keeps_the_findings_of_other_kernels(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + STORE + END + "\n\n@nki.jit" + OTHER)
    call("check", f"{path}:more_holes", *ARG, "--write-baseline", tmp_path / "known.json")
    content = json.loads((tmp_path / "known.json").read_text())
    assert [(row["kernel"], row["rule"], row["count"]) for row in content["findings"]] == [
        ("holes", "unwritten-read", 1), ("more_holes", "unwritten-read", 1),
    ]  # fmt: skip


def test_writing_a_baseline_forgets_what_was_repaired(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path, HEAD.replace("tile[0:64], x[0:64]", "tile, x") + STORE + END)
    assert json.loads((tmp_path / "known.json").read_text()) == {
        "schema": "nkilab.baseline/1",
        "findings": [],
    }


def test_what_is_known_stands_in_json_and_sarif(tmp_path: Path) -> None:
    path = written(tmp_path)
    known = ("--baseline", tmp_path / "known.json")
    done = call("check", f"{path}:holes", *ARG, *known, "--json", "--sarif", tmp_path / "found.sarif")
    report = json.loads(done.stdout)
    assert (report["passes"], report["findings"]) == (True, [])
    assert [finding["rule"] for finding in report["known"]] == ["unwritten-read"]
    (result,) = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    assert (result["ruleId"], result["baselineState"]) == ("unwritten-read", "unchanged")


def test_all_results_of_a_run_have_a_state_or_none_has(tmp_path: Path) -> None:
    """SARIF 2.1.0, 3.27.24. The place is a URI, in which a space is %20."""
    written(tmp_path)
    path = script(tmp_path, HEAD + STORE + "    nisa.dma_copy(out,  tile)\n" + END, "kernels.py")
    states = []
    for known in (("--baseline", tmp_path / "known.json"), ()):
        call("check", f"{path}:holes", *ARG, *known, "--sarif", tmp_path / "found.sarif", folder=tmp_path)
        results = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
        states.append([result.get("baselineState") for result in results])
    assert states == [["new", "unchanged"], [None, None]]
    path = path.rename(tmp_path / "two words.py")
    call("check", f"{path}:holes", *ARG, "--sarif", tmp_path / "found.sarif", folder=tmp_path)
    result = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "two%20words.py"}


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema": "nkilab.baseline/1", "findings": [{"rule": "race"}]}', "\x00"]
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: str) -> None:
    path = script(tmp_path, HEAD + STORE + END, "kernels.py")
    (tmp_path / "known.json").write_text(content)
    done = call("check", f"{path}:holes", *ARG, "--baseline", "known.json", folder=tmp_path)
    assert outcome_of(done) == (
        2, "", "nkilab: known.json is not a baseline file\n  hint: write one with --write-baseline FILE\n"
    )  # fmt: skip


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, HEAD + STORE + END, "kernels.py")
    done = call("check", f"{path}:holes", *ARG, "--baseline", "known.json", folder=tmp_path)
    text = "nkilab: known.json cannot be read: no such file or directory\n"
    assert outcome_of(done) == (2, "", text + "  hint: write one with --write-baseline FILE\n")


def test_a_baseline_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, HEAD + STORE + END, "kernels.py")
    done = call("check", f"{path}:holes", *ARG, "--write-baseline", "no/known.json", folder=tmp_path)
    assert outcome_of(done) == (
        2,
        "",
        "nkilab: the folder of no/known.json does not exist\n  hint: make no, or name another file\n",
    )
