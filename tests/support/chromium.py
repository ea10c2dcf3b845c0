"""Headless Chromium over its debugging pipe: real layout, a real console, and no client library."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


class Chromium:
    """One page. ``complaints``: what its console says, and exceptions; ``requests``: the addresses asked for."""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
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
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url="about:blank")  # from one fragment to another nothing is loaded
        self.call("Page.navigate", url=path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        for _ in range(200):
            if self.evaluate("document.readyState") == "complete" and self.evaluate("location.protocol") == "file:":
                return
            time.sleep(0.05)
        raise RuntimeError(f"chromium did not load {path}")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, which must be JSON."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """A key by its name; Enter presses a button that has the focus, as it does for a user."""
        typed = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
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
    command = ["bash", "-c", wiring, "bash", EXECUTABLE, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
