"""Jobs on records: plain and compiled runs agree, compiling is announced once, changed code anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec import Struct

from nkilab import records
from nkilab.records import Job, column, numbers, table

STEP = 3


class Account(Struct):
    owner: int
    balance: float = 1.5
    is_open: bool = True


def pay(accounts: list[Account], payments: list[int]) -> int:
    """Raise the balance of the open accounts; returns how many payments failed."""
    failed = 0
    for number in range(len(payments)):
        failed += pay_one(accounts, payments[number])
    return failed


def pay_one(accounts: list[Account], number: int) -> int:
    account = accounts[number]
    if not account.is_open:
        return 1
    account.balance += STEP
    if account.balance > 5:
        account.is_open = False
    return 0


def paid(job: Job, *, as_array: bool) -> tuple[int, list[float], list[bool]]:
    function = job.compiled if as_array else job.chosen(0)[0]
    accounts = table(Account, {"owner": [7, 8]}, 2, as_array=as_array)
    failed = function(accounts, numbers([0, 1, 0, 0], as_array=as_array))
    assert column(accounts, "owner").tolist() == [7, 8]
    return failed, column(accounts, "balance").tolist(), column(accounts, "is_open").tolist()


@pytest.mark.parametrize("as_array", [False, True])
def test_a_job_does_the_same_plain_and_compiled(as_array: bool) -> None:
    # 1.5 + 3 + 3 closes the first account: its third payment fails
    assert paid(Job(pay, "payments"), as_array=as_array) == (1, [7.5, 4.5], [False, True])


def test_a_short_job_is_not_compiled() -> None:
    job = Job(pay, "payments")
    run, as_array = job.chosen(records.LONG - 1)
    assert run.args == (pay,)
    assert not as_array
    assert "compiled" not in vars(job)


def test_a_job_that_was_compiled_stays_so() -> None:
    job = Job(pay, "payments")
    for steps in (records.LONG, 0):
        run, as_array = job.chosen(steps)
        assert run.args == (job.compiled,)
        assert as_array


def test_the_code_of_a_called_function_and_its_numbers_name_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = records._digest(pay)
    monkeypatch.setitem(pay_one.__globals__, "STEP", 4)
    other_number = records._digest(pay)
    monkeypatch.setattr(sys.modules[__name__], "pay_one", paid)
    assert len({before, other_number, records._digest(pay)}) == 3


def test_a_table_without_columns_has_the_defaults() -> None:
    (plain,) = table(Account, {"owner": 3}, 1, as_array=False)
    (account,) = table(Account, {"owner": 3}, 1, as_array=True)
    assert (plain.owner, plain.balance, plain.is_open) == (3, 1.5, True)
    assert (account.owner, account.balance, account.is_open) == (3, 1.5, True)


PLACING = """
import numpy as np
from nkilab import records
from nkilab.place.memory import place
records.LONG = 0
memory, _ = place(4, np.array([2, 2, 4]), np.array([0, 1, 2]), np.array([1, 1, 3]), 4)
print(records.column(memory.tiles, "address").tolist())
"""


def test_compiling_is_announced_the_first_time_only(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NKILAB_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(Path(records.__file__).parents[1]),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    runs = [
        subprocess.run(
            [sys.executable, "-c", PLACING], capture_output=True, text=True, check=True, env=environment
        )
        for _ in range(2)
    ]
    assert [r.stderr for r in runs] == ["nkilab: compiling the placement of tiles, once\n", ""]
    assert [r.stdout for r in runs] == ["[0, 2, 0]\n"] * 2


def test_numba_can_be_switched_off(tmp_path: Path) -> None:
    environment = {
        **os.environ, "NUMBA_DISABLE_JIT": "1", "NKILAB_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(Path(records.__file__).parents[1]),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PLACING], capture_output=True, text=True, check=True, env=environment
    )
    assert (done.stdout, done.stderr) == ("[0, 2, 0]\n", "")


def test_an_array_of_records_takes_no_more_than_its_fields() -> None:
    # 8 bytes, 4, 1, 3 to align the next record
    assert records.dtype_of(Account).itemsize == 16
    assert table(Account, {"owner": np.arange(5)}, 5, as_array=True).nbytes == 5 * 16
