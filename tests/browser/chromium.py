"""A headless Chromium, driven by its own DevTools protocol: as much of it as tests of a page need, and no more."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
FLAGS_OF_PEACE: Final = ("--disable-background-networking", "--disable-component-update", "--hide-scrollbars")
POLL_S: Final = 0.05
KEYS: Final = {"Enter": 13, "Escape": 27, "End": 35, "ArrowDown": 40}


class Tab:
    """One page; what it complained of and what it asked for is kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session: str | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self.complaints: list[str] = []
        self.urls: list[str] = []

    async def begin(self) -> None:
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable")

    async def listen(self) -> None:
        """Sort what the browser says, until it ends."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            else:
                self._on_event(said["method"], said["params"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        answered = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        answer = await asyncio.wait_for(answered, 30)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.scheme(scheme)
        await self.send("Page.navigate", url=url)

    async def scheme(self, name: str) -> None:
        """light or dark"""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, timeout_s: float = 10) -> Any:
        """The value once it is true."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (value := await self.value(expression)):
            assert asyncio.get_running_loop().time() < deadline, f"never true: {expression}; {self.complaints}"
            await asyncio.sleep(POLL_S)
        return value

    async def key(self, name: str) -> None:
        """Press and release one of `KEYS`."""
        key = {"key": name, "code": name, "windowsVirtualKeyCode": KEYS[name]}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text="\r" if name == "Enter" else "", **key)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **key)

    async def screenshot(self, path: Path) -> None:
        picture = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(picture["data"]))

    def _on_event(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case _:
                pass


@asynccontextmanager
async def a_browser(folder: Path, flags: Sequence[str] = ()) -> AsyncIterator[Tab]:
    """An empty page in a browser of its own; both end with the scope."""
    command = next(found for name in COMMANDS if (found := shutil.which(name)))
    arguments = [*FLAGS, *FLAGS_OF_PEACE, *flags, f"--user-data-dir={folder}", "about:blank"]
    process = await asyncio.create_subprocess_exec(command, *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        said = b""
        while not said.startswith(b"DevTools listening on "):
            said = await asyncio.wait_for(process.stderr.readline(), 30)
            assert said, "Chromium ended before it listened"
        url = said.decode().split()[-1]
        async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            await tab.begin()
            try:
                yield tab
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
