"""HBM tensors that a kernel creates or is given to write, and what it returns of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NkilabError, RuleError, UseError
from ..tiles.coverage import Coverage
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Layout, Storage, View
from ..trace.origins import written_views
from ..trace.run_notes import Returned
from ..trace.session import Session
from .annotations import is_mutable
from .kernel import Kernel

# Elements of a result up to which those written are counted one by one; of more, views may count twice.
_COUNTED = 2**28


def shared_storage(session: Session, shape: tuple[int, ...], dtype: DType, scope: str, name: str) -> Storage:
    """The storage of an HBM tensor; the n-th shared one of a name is the same in every instance.

    Raises:
        RuleError: if the instances disagree on its shape or type.
    """
    if scope != "shared":
        return session.new_storage(shape, dtype, HBM, "private", name)
    storage = session.shared_output(shape, dtype, name)
    if storage.shape != shape or storage.dtype is not dtype:
        raise RuleError(
            f"this instance creates {dtype}{list(shape)} where the first one created "
            f"{storage.dtype}{list(storage.shape)}; instances share one storage",
            hint="create shared_hbm tensors in the same order in every program instance",
        )
    return storage


def check_outputs(
    kernel: Kernel, sessions: Sequence[Session], arguments: Mapping[str, Any], returned: Sequence[View]
) -> None:
    """Refuse a Beta 1 kernel that leaves a result unwritten, or changes a parameter and does not return it.

    Args:
        kernel: that has run.
        sessions: its programs, one per core.
        arguments: what it was called with, by parameter.
        returned: the tensors among its results, of the first program.

    Raises:
        UseError: if it does.
    """
    if kernel.spelling != "neuronxcc":
        return
    for tensor in returned:
        if tensor.storage.memory == HBM and _is_unwritten(sessions, tensor):
            raise _defined(kernel, UseError(
                f"the result {tensor.describe()} was never written",
                hint="store to it, a default value if a loop may not run at all",
                key="err_tensor_output_not_written_to",
            ))  # fmt: skip
    flags = str(kernel.options.get("experimental_flags", ""))
    if "skip-mutable-return-check" in flags or kernel.options.get("mode") == "trace":
        return
    returned_ids = {id(tensor.storage) for tensor in returned}
    for name, value in arguments.items():
        if (
            not isinstance(value, View)
            or not is_mutable(kernel.function, name)
            or id(value.storage) in returned_ids
        ):
            continue
        if is_written(sessions, value.storage):
            raise _defined(kernel, UseError(
                f"the kernel writes to {name}, a mutable parameter, and does not return it",
                hint=f"return {name} beside the other results",
                key="err_mutable_parameter_not_returned",
            ))  # fmt: skip


def _defined(kernel: Kernel, error: NkilabError) -> NkilabError:
    """`error` at the line where the kernel begins."""
    code = kernel.function.__code__
    return error.located(f"{Path(code.co_filename).name}:{code.co_firstlineno}", kernel.name)


def _numbers(sessions: Sequence[Session], storage: Storage) -> Iterable[tuple[Session, int]]:
    """The number of a storage of the first program in every program that sees it."""
    first = sessions[0]
    yield first, storage.number
    key = next((k for k, storage_of_key in first.shared.items() if storage_of_key is storage), None)
    for session in sessions[1:]:
        if key in session.shared:
            yield session, session.shared[key].number


def _is_unwritten(sessions: Sequence[Session], tensor: View) -> bool:
    """Whether no row of any program writes to the storage of a result; inputs are written."""
    storage = tensor.storage
    if storage.scope == "input" or storage.written.is_full:
        return False
    if sessions[0].has_data:
        return storage.written.is_empty
    return not is_written(sessions, storage)


def inputs_to_write_back(sessions: Sequence[Session]) -> list[Storage]:
    """The inputs whose new elements the caller's arrays do not have yet."""
    first = sessions[0]
    copied = [
        storage for key, storage in first.shared.items()
        if key[0] == "input" and storage.is_mutable and storage.host_array is not None
        and storage not in first.changed_inputs and is_written(sessions, storage)
    ]  # fmt: skip
    return [*first.changed_inputs, *copied]


def changed_inputs(sessions: Sequence[Session]) -> tuple[str, ...]:
    """The inputs that the programs of a rank write, by name."""
    inputs = [(key[1], storage) for key, storage in sessions[0].shared.items() if key[0] == "input"]
    written = {storage.name for storage in sessions[0].changed_inputs}
    return tuple(
        name for name, storage in inputs
        if name in written or (storage.is_mutable and is_written(sessions, storage))
    )  # fmt: skip


def is_written(sessions: Sequence[Session], storage: Storage) -> bool:
    """Whether a row of any of the programs writes to a storage of the first one."""
    return any(written_views(s.program, n) for s, n in _numbers(sessions, storage))


def note_holes(sessions: Sequence[Session], returned: Sequence[View]) -> None:
    """Note the results in HBM of which rows write a part only, where nothing is computed that would tell.

    Whether views add up to the whole is asked of their sizes first: views that overlap are not looked at.
    """
    for tensor in returned:
        storage, total = tensor.storage, prod(tensor.storage.shape)
        if storage.memory != HBM or storage.scope == "input":
            continue
        written = [view for s, n in _numbers(sessions, storage) for view in written_views(s.program, n)]
        count = sum(view.size for _, view in written)
        if any(view.indices for _, view in written) or count >= total:
            continue
        count = _covered(storage, written) if total <= _COUNTED else count
        sessions[0].program.marks.returned.append(Returned(storage.number, count, total))


def _covered(storage: Storage, views: Iterable[tuple[int, Layout]]) -> int:
    """How many elements of a storage some views of it hold together: offset and layout of each."""
    covered = Coverage(storage)
    for offset, view in views:
        covered.add(View(storage, offset, view))
    return int(np.count_nonzero(covered.bits))
