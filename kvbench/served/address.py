"""Reads the address of a server as ``--model`` takes it: ``http://localhost:8080/v1``, with options
in brackets behind it.

Neither the address nor the key enters a store: both say who the user is, and a page is public."""

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from kvbench.experiments.arguments import parse_arguments, write_arguments
from kvbench.publish.places import name_of_place
from kvbench.system.errors import KVBenchError
from policies.treatments.options import split_name

KEY = "KVBENCH_API_KEY"  # the environment variable that a key is looked for in
SHOWN = "http://SERVER/v1"  # stands for every address in what is stored
END = "/v1"  # of an address; what a server says of itself lies beside it


class ServerOptions(BaseModel):
    """Declares what an address takes in brackets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None  # of the model, where a server has several
    tokenizer: str | None = None  # of the model, as --model takes it: counts, and writes prompts
    # As token numbers of the tokenizer, or as messages, which the server's template writes.
    prompt: Literal["raw", "chat"] | None = None
    requests: Annotated[int, Field(ge=1, le=256)] = 4  # that are under way at once, at most
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 600  # that one answer may take
    key: str | None = None  # the environment variable that holds the key, by default KEY
    proxy: bool = False  # whether the proxies that the environment names are used


@dataclass(frozen=True)
class Address:
    """Holds where a server is, and how it is asked."""

    url: str = field(repr=False)  # without a slash at its end
    options: ServerOptions

    @classmethod
    def read(cls, text: str) -> Self:
        """Reads it from what ``--model`` is given. Raises :class:`KVBenchError` for an address that
        no server has, and for options that there are not."""
        url, written = split_name(text)
        try:
            parts = urlsplit(url)
            is_complete = bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            is_complete = False
        if not is_complete:
            raise KVBenchError("--model: give the address of a server as http://HOST:PORT/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise KVBenchError(
                "--model: the address of a server has no user, key or question in it: a key comes "
                f"from the environment variable {KEY}, or that of --model 'ADDRESS(key=NAME)'"
            )
        options = parse_arguments("the address of a server", written, "--model", ServerOptions)
        if options.prompt == "raw" and options.tokenizer is None:
            raise KVBenchError("--model: prompt=raw needs the model's tokenizer: tokenizer=NAME")
        return cls(url.rstrip("/"), options)

    @property
    def root(self) -> str:
        """Returns the address beside which a server tells of itself."""
        return self.url.removesuffix(END)

    @property
    def is_raw(self) -> bool:
        """Tells whether prompts are sent as token numbers."""
        return self.options.tokenizer is not None and self.options.prompt != "chat"

    @property
    def shown(self) -> str:
        """Writes what is stored in its place: the options that decide on answers, and no host."""
        tokenizer = self.options.tokenizer
        decisive = {
            "tokenizer": tokenizer and name_of_place(tokenizer),
            "prompt": self.options.prompt,
        }
        return write_arguments(SHOWN, decisive)

    def read_key(self) -> str | None:
        """Reads the key from the environment, if there is one. Raises :class:`KVBenchError` where
        the variable that was named is not set, and for a key that no header can hold."""
        name = self.options.key or KEY
        key = os.environ.get(name, "").strip()
        if not key and self.options.key is not None:
            raise KVBenchError(f"--model: the environment variable {name} holds no key")
        if not key.isascii() or not key.isprintable():
            raise KVBenchError(f"--model: what {name} holds is no key: it has strange characters")
        return key or None
