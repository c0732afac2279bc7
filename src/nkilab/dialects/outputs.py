"""HBM tensors that a kernel creates: one storage for all program instances of a launch, where shared."""

from __future__ import annotations

from ..errors import RuleError
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Storage
from ..trace.session import Session


def shared_storage(session: Session, shape: tuple[int, ...], dtype: DType, scope: str, name: str) -> Storage:
    """The storage of an HBM tensor; the n-th shared one of every instance is the same.

    Raises:
        RuleError: if the instances disagree on its shape or type.
    """
    if scope != "shared":
        return session.new_storage(shape, dtype, HBM, "private", name)
    place = session.shared_at
    session.shared_at += 1
    if place == len(session.shared):
        session.shared.append(session.new_storage(shape, dtype, HBM, "shared", name))
    storage = session.shared[place]
    if storage.shape != shape or storage.dtype is not dtype:
        raise RuleError(
            f"this instance creates {dtype}{list(shape)} where the first one created "
            f"{storage.dtype}{list(storage.shape)}; instances share one storage",
            hint="create shared_hbm tensors in the same order in every program instance",
        )
    return storage
