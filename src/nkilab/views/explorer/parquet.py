"""The tables as Parquet files, written by pyarrow."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from ..._lazy import pyarrow
from ...errors import UsageError
from ..run import Run
from . import schema_fields, tables_of_ranks
from .schema import SCHEMA_FIELDS, TABLES, Field


def parquet_files(run: Run) -> dict[str, bytes]:
    """The content of Summary.parquet, Instruction.parquet, ..., by file name; of ranks in a folder for each.

    Raises:
        UsageError: if pyarrow is missing.
    """
    try:
        arrow, parquet = pyarrow(), pyarrow("parquet")
    except ModuleNotFoundError:
        raise UsageError(
            "Parquet tables are written by the package pyarrow, which is not installed",
            hint="install nkilab[parquet]",
        ) from None
    schema = schema_fields()
    written: dict[int, dict[str, bytes]] = {}
    files: dict[str, bytes] = {}
    for rank, own in tables_of_ranks(run).items():
        if id(own) not in written:
            tables = {name: (columns, TABLES[name]) for name, columns in own.items()}
            tables["SchemaFields"] = (schema, SCHEMA_FIELDS)
            written[id(own)] = {
                f"{name}.parquet": _written(parquet, _table(arrow, *table)) for name, table in tables.items()
            }
        folder = f"{rank.replace(' ', '_')}/" if rank else ""
        files |= {f"{folder}{name}": content for name, content in written[id(own)].items()}
    return files


def _written(parquet: Any, table: Any) -> bytes:
    out = BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


def _table(arrow: Any, columns: dict[str, Any], fields: tuple[Field, ...]) -> Any:
    types = {"int64": arrow.int64(), "int32": arrow.int32(), "double": arrow.float64(),
             "string": arrow.string(), "bool": arrow.bool_()}  # fmt: skip
    described = [
        arrow.field(f.name, types[f.type], metadata={"unit": f.unit} if f.unit else None) for f in fields
    ]
    arrays = [arrow.array(columns[f.name], type=types[f.type], from_pandas=False, safe=False) for f in fields]
    return arrow.Table.from_arrays(arrays, schema=arrow.schema(described))
