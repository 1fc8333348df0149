"""Tables of numbers and names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow._extras import need


class Frame(dict[str, NDArray[Any]]):
    """A table as a dictionary of columns, which are arrays of the same length.

    >>> from hedgerow import Frame
    >>> import numpy as np
    >>> frame = Frame(method=np.array(["tr", "mk"], dtype=object), mse=np.array([0.1, 0.2]))
    >>> frame.to_pandas().shape
    (2, 2)
    """

    def to_pandas(self) -> Any:
        """A frame of pandas."""
        return need("pandas", "pandas").DataFrame(dict(self))

    def to_polars(self) -> Any:
        """A frame of polars."""
        columns = {name: list(one) if one.dtype == np.object_ else one for name, one in self.items()}
        return need("polars", "polars").DataFrame(columns)
