"""A headless Chromium that tests and people look through: DevTools protocol over two pipes, standard library only.

python tests/report/browser.py PAGE.html OUT_DIR      screenshots at 390 and 1440 px, light and dark
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    # WebGL drawn by the processor, asked for by name: falling back to it is announced on the console.
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
WITHOUT_WEBGL = ("--disable-3d-apis",)

# The browser reads commands from descriptor 3 and answers on 4, whatever numbers the pipes have here.
_AS_3_AND_4 = """
import os, sys
ends = [os.dup(os.dup(os.dup(int(end)))) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The browser on PATH, if there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page in one browser; use as a context manager.

    Args:
        more: further flags, such as `WITHOUT_WEBGL`.

    Attributes:
        problems: console errors, uncaught exceptions and log entries of the level error, as text.
        requests: addresses that the page asked for, the page itself included.
    """

    def __init__(self, more: tuple[str, ...] = ()) -> None:
        program = chromium()
        assert program is not None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="paceline-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = [*FLAGS, *more, f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AS_3_AND_4, str(to_browser), str(from_browser), program, *flags, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._id = 0
        self._session: str | None = None
        self._loaded: set[str] = set()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(timeout=20)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError("the browser went away")
            self._buffer += more
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:800])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"])[:800])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(json.dumps(params["entry"])[:800])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"][:200])
            case "Page.lifecycleEvent" if params["name"] == "load":
                self._loaded.add(params["loaderId"])

    def open(self, page: Path, *, width: int, dark: bool, fragment: str = "") -> None:
        """Show a file in a window of that width, with the system's colour scheme set, and wait for its load."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wish])
        # From a blank page, so that an address which differs in its fragment only is loaded anew.
        self._go("about:blank")
        self._go(page.resolve().as_uri() + fragment)
        # Two frames: styles are settled and what was drawn is on the screen.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _go(self, address: str) -> None:
        went = self.call("Page.navigate", url=address)
        if "errorText" in went:
            raise RuntimeError(f"{address}: {went['errorText']}")
        while went["loaderId"] not in self._loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:800])
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """A key goes down and up."""
        codes = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Enter": 13, " ": 32}
        fields = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        typed = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def drag(self, selector: str, right: int, down: int) -> None:
        """Press on the middle of an element, move by so many pixels in a few steps, let go."""
        self.value(f"document.querySelector('{selector}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.value(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **button)
        for part in (0.25, 0.5, 0.75, 1):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + part * right, y=y + part * down, **button)
            self.value("new Promise((done) => requestAnimationFrame(() => done(1)))")
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + right, y=y + down, **button)
        self.value("new Promise((done) => requestAnimationFrame(() => done(1)))")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


def main(page: str, out: str) -> None:
    """Screenshots in both widths and themes, and what the console said."""
    Path(out).mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for width in (390, 1440):
            for dark in (False, True):
                browser.open(Path(page), width=width, dark=dark)
                name = f"{Path(page).stem}-{width}-{'dark' if dark else 'light'}.png"
                browser.screenshot(Path(out) / name)
                overflow = browser.value("document.scrollingElement.scrollWidth - innerWidth")
                sys.stdout.write(f"{name}: {overflow} px too wide\n")
        sys.stdout.write(f"problems: {browser.problems}\n")
        sys.stdout.write(f"requests: {sorted(set(browser.requests))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
