"""What rows offer beyond Arrow's C interface, with the libraries imported where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class _Native(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class Convertible:
    """Rows that pyarrow, polars, pandas and others take as they are, by ``__arrow_c_stream__``."""

    _native: Any

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with Arrow's C stream of the rows."""
        return self._native.__arrow_c_stream__(requested_schema)

    def _reraise(self) -> None:
        """Raises our own error, where another library has met it in its own words."""

    def to_pyarrow(self) -> pyarrow.Table:
        """The rows as a ``pyarrow.Table``, without copying them."""
        import pyarrow

        try:
            return pyarrow.RecordBatchReader.from_stream(self).read_all()
        except BaseException:
            self._reraise()
            raise

    def to_polars(self) -> polars.DataFrame:
        """The rows as a ``polars.DataFrame``, without copying them."""
        import polars

        try:
            return polars.DataFrame(self)
        except BaseException:
            self._reraise()
            raise

    def to_pandas(self, *, arrow: bool = True) -> pandas.DataFrame:
        """The rows as a ``pandas.DataFrame``; needs pyarrow as well.

        By default columns stay as they are, in memory that is shared with Arrow. With ``arrow=False``
        they are NumPy's: copied, with NaN for what is null, and integers with nulls as floats.
        """
        table = self.to_pyarrow()
        if not arrow:
            return table.to_pandas()
        import pandas

        return table.to_pandas(types_mapper=pandas.ArrowDtype)
