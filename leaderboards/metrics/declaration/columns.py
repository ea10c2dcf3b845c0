"""Classes of pydantic with the columns that metrics declare."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

Model = TypeVar("Model", bound=BaseModel)


def with_columns(columns: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Returns a decorator that adds columns to a class, which stays as closed as it is. ``columns``: as for
    :func:`pydantic.create_model`, each a type and the value where there is none."""

    def extend(base: type[Model]) -> type[Model]:
        return create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **columns)

    return extend
