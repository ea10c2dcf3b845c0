"""Sends requests to one address and to no other, and repeats those that fail for a while."""

import threading
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from kvbench.served.address import Address
from kvbench.system.errors import KVBenchError

ATTEMPTS = 6  # of a request, the first among them
FIRST_WAIT = 0.5  # seconds before the second attempt; twice as many before each further one
LONGEST_WAIT = 60.0  # also where a server asks for more
CONNECTING = 10.0  # seconds
# Statuses of a server that is busy or starts: its next answer may be another.
PASSING = {408, 409, 425, 429, 500, 502, 503, 504, 529}
REFUSED_KEYS = {401, 403}
LONGEST_MESSAGE = 300  # characters of what a server says


class RefusedError(KVBenchError):
    """The server understood a request and does not answer it: to repeat it would not help."""


class StoppedError(KVBenchError):
    """The run ends for another reason: a request is not repeated."""


class Client:
    """Asks one server. Several threads may use it at once."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._key = address.read_key()
        headers = {"User-Agent": "kvbench"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        options = address.options
        # Without trust_env nothing but the address decides where a request goes: proxies of the
        # environment, and user names of a .netrc, are left alone unless somebody asks for them.
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(options.seconds, connect=CONNECTING),
            limits=httpx.Limits(max_connections=options.requests + 1),
            trust_env=options.proxy,
            follow_redirects=False,
        )
        self.repeats: Counter[str] = Counter()  # requests that were sent again, by reason
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def stop(self) -> None:
        """Ends the waiting before a repeated request."""
        self._stopped.set()

    def look_up(self, path: str, at_root: bool = False) -> Any:
        """Returns what a server says of itself; None where it says nothing. ``at_root``: beside the
        address. Raises :class:`KVBenchError` where nobody answers or the key is refused."""
        base = self.address.root if at_root else self.address.url
        response = self._send("GET", f"{base}{path}", None)
        if response.status_code != httpx.codes.OK:
            return None
        try:
            return response.json()
        except ValueError:
            return None

    def ask(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an answer. Raises :class:`RefusedError` for a request that the server does not
        take, and :class:`KVBenchError` where it does not answer after several attempts."""
        response = self._send("POST", f"{self.address.url}{path}", body)
        if response.status_code != httpx.codes.OK:
            raise RefusedError(f"the server refuses a request ({self._message(response)})")
        answer: Mapping[str, Any] = response.json()
        return answer

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None) -> httpx.Response:
        wait, fault = FIRST_WAIT, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._count(fault)
                if self._stopped.wait(wait):
                    raise StoppedError("the run has ended")
                wait *= 2
            try:
                response = self._http.request(method, url, json=body)
            except httpx.RequestError as error:
                fault = self._describe(error)
                continue
            fault = _fault_of_answer(method, response)
            if not fault:
                self._check(response)
                return response
            wait = _asked_wait(response, wait)
        raise KVBenchError(
            f"the server gave no answer in {ATTEMPTS} attempts (at last: {fault}): see whether it "
            "runs, then start the same run again, which asks what is missing"
        )

    def _count(self, reason: str) -> None:
        with self._lock:
            self.repeats[reason] += 1

    def _describe(self, error: httpx.RequestError) -> str:
        """Says what went wrong without the words of the library, which may hold the address."""
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return "no connection"
        if isinstance(error, httpx.TimeoutException):
            return f"no answer within {self.address.options.seconds:g} s"
        return "the answer broke off"

    def _check(self, response: httpx.Response) -> None:
        """Raises :class:`KVBenchError` for a refused key, and for a server that sends elsewhere."""
        if response.status_code in REFUSED_KEYS:
            advice = "it comes from an environment variable, see docs/servers.md"
            raise KVBenchError(
                f"the server refuses the key, or wants one ({response.status_code}): {advice}"
            )
        if response.is_redirect:
            raise KVBenchError(
                f"the server sends elsewhere ({response.status_code}), and nothing is sent to "
                "another address: give the one that is meant"
            )

    def _message(self, response: httpx.Response) -> str:
        """Returns what the server says of an error, without the key and the address."""
        text = response.text
        try:
            error = response.json().get("error", text)
            text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
        except (ValueError, AttributeError):  # no JSON, or none with fields
            pass
        text = " ".join(text.split())[:LONGEST_MESSAGE]
        for secret in (self._key, self.address.url, self.address.root):
            if secret:
                text = text.replace(secret, "…")
        return f"{response.status_code}: {text}" if text else str(response.status_code)


def _fault_of_answer(method: str, response: httpx.Response) -> str:
    """Says why an answer is none; empty where it is one, or where to repeat it is no help."""
    if response.status_code in PASSING:
        return f"status {response.status_code}"
    if method == "POST" and response.status_code == httpx.codes.OK:
        try:
            is_readable = isinstance(response.json(), dict)
        except ValueError:
            is_readable = False
        if not is_readable:
            return "the answer broke off"
    return ""


def _asked_wait(response: httpx.Response, otherwise: float) -> float:
    """Returns the seconds that a server asks to be left alone for."""
    try:
        seconds = float(response.headers.get("Retry-After", otherwise))
    except ValueError:  # a date
        return otherwise
    return min(max(seconds, 0.0), LONGEST_WAIT)


def repeats_line(repeats: Counter[str]) -> str:
    """Says how many requests were sent again and why; empty where none was.

    >>> repeats_line(Counter({"status 429": 2, "no connection": 1}))
    '3 requests were sent again (2 x status 429, 1 x no connection)'
    """
    if not repeats:
        return ""
    reasons = ", ".join(f"{count} x {reason}" for reason, count in repeats.items())
    total = sum(repeats.values())
    noun = "request was" if total == 1 else "requests were"
    return f"{total} {noun} sent again ({reasons})"
