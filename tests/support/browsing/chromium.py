"""Headless Chromium over its debugging pipe: real layout, a real console, and no client library."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

EXECUTABLE = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
needs_chromium = pytest.mark.skipif(
    EXECUTABLE is None, reason="chromium is not installed: apt-get install chromium"
)
on_every_screen = pytest.mark.parametrize(
    ("width", "scheme"), list(product((320, 1280), ("light", "dark")))
)
BUSY = "document.querySelectorAll('[aria-busy=true]').length"
IN_VIEW = "(element => element.offsetParent !== null)"
# Texts whose box has no room for two letters beside each other, though they are long.
SQUEEZED = """[...document.querySelectorAll('body *')].filter(element => {
  const texts = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).map(node => node.data.trim());
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  return texts.some(text => text.length > 20) && style.display !== 'inline' && element.offsetParent
    && !element.closest('.unseen, .skip, svg') && box.width < 3 * parseFloat(style.fontSize);
}).map(element => element.textContent.slice(0, 60))"""
# The lowest contrast of any text of the tiles against what it stands on, tiles being translucent
# and details too.
LOWEST_CONTRAST = """(() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return [n.slice(0, 3), n[3] ?? 1]; };
  const over = (top, share, below) => top.map((value, index) => value * share + below[index] * (1 - share));
  const linear = value => value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
  const paper = parse(getComputedStyle(document.body).backgroundColor)[0];
  let lowest = 21;
  for (const text of document.querySelectorAll('.heat td b, .heat td i, .quiet, .key, .notes')) {
    const tile = text.closest('td');
    const ground = tile ? over(...parse(getComputedStyle(tile).backgroundColor), paper) : paper;
    const style = getComputedStyle(text);
    const ink = over(parse(style.color)[0], Number(style.opacity), ground);
    const [one, other] = [light(ground), light(ink)];
    lowest = Math.min(lowest, Math.max(one, other) / Math.min(one, other));
  }
  return lowest;
})()"""


class Chromium:
    """One page. ``complaints``: what its console says, and exceptions; ``requests``: the addresses
    asked for."""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command; events that arrive before it are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("chromium went away")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _note(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(details["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(str(details["args"]))
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    def open(
        self,
        path: Path,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        script: bool = True,
        fragment: str = "",
    ) -> None:
        """Loads a file, at that size in CSS pixels, also where it is open already."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        # From one fragment to another nothing is loaded.
        self.call("Page.navigate", url="about:blank")
        self.call(
            "Page.navigate", url=path.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        )
        for _ in range(200):
            if (
                self.evaluate("document.readyState") == "complete"
                and not (script and self.evaluate(BUSY))
                and self.evaluate("location.protocol") == "file:"
            ):
                return
            time.sleep(0.05)
        raise RuntimeError(f"chromium did not load {path}")

    def open_quietly(
        self, path: Path, width: int, scheme: str = "light", fragment: str = ""
    ) -> None:
        """Loads a page that says nothing on the console, asks for no other file, is no wider than
        its window, and squeezes no text into a narrow box."""
        self.complaints.clear()
        self.requests.clear()
        self.open(path, width=width, scheme=scheme, fragment=fragment)
        assert self.evaluate("document.documentElement.scrollWidth") <= width, (
            "it is wider than its window"
        )
        assert self.evaluate(SQUEEZED) == []
        assert self.complaints == [], self.complaints
        assert [request.partition("#")[0] for request in self.requests] == [path.as_uri()], (
            self.requests
        )
        assert self.evaluate("document.querySelectorAll('img').length") == 0, (
            "hostile text is an image"
        )
        assert self.evaluate("document.title") != "owned", "hostile text ran"

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, which must be JSON."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """A key by its name; Enter presses a button that has the focus, as it does for a user."""
        typed = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)[
            "data"
        ]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """A browser with its own profile folder, ended with the block."""
    if EXECUTABLE is None:
        raise RuntimeError("chromium is not installed")
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4; the shell puts them there.
    wiring = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
    command = [
        "bash",
        "-c",
        wiring,
        "bash",
        EXECUTABLE,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
    ]
    process = subprocess.Popen(
        command,
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Chromium(write, read)
    finally:
        os.close(write)
        os.close(read)
        process.terminate()
        process.wait(timeout=20)
