"""Chromium without a screen, steered through its debugging pipe: descriptors 3 and 4, a JSON object and a zero byte a message."""
import base64, fcntl, json, os, signal, subprocess, sys, threading, time

# The pipe has fixed descriptors, which Popen cannot give.
LAUNCHER = "import os,sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-breakpad", "--hide-scrollbars", "--password-store=basic"]


class BrowserError(Exception):
    """Chromium said no, nothing, or that the page threw."""


class Browser:
    """A context manager: leaving it ends the browser. `home` is a folder for everything that it writes."""

    def __init__(self, home, log):
        self.home, self.log = home, log
        self.answers, self.events, self.changed, self.last = {}, [], threading.Condition(), 0

    def __enter__(self):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Beyond 3 and 4, which the launcher fills.
        given = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (theirs_in, theirs_out)]
        sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, *map(str, given), "chromium", *FLAGS, *sandbox,
                 f"--user-data-dir={self.home}/profile", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=given, start_new_session=True,
                env={**os.environ, "HOME": str(self.home), "XDG_CONFIG_HOME": f"{self.home}/config",
                     "XDG_CACHE_HOME": f"{self.home}/cache"})
        for number in (theirs_in, theirs_out, *given):
            os.close(number)
        self.input, self.output = os.fdopen(ours_in, "rb", buffering=0), os.fdopen(ours_out, "wb", buffering=0)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", seconds=5)
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)  # A session of its own: nobody else is in it.
            self.process.wait()
        self.output.close()

    def _read(self):
        rest = b""
        while piece := self.input.read(65536):
            *whole, rest = (rest + piece).split(b"\0")
            with self.changed:
                for message in map(json.loads, whole):
                    if "id" in message:
                        self.answers[message["id"]] = message
                    else:
                        self.events.append(message)
                self.changed.notify_all()

    def call(self, method, session=None, seconds=30, **parameters):
        with self.changed:
            self.last += 1
            number = self.last
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        self.output.write(json.dumps(message).encode() + b"\0")
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.answers, seconds):
                raise BrowserError(f"no answer to {method} within {seconds} s; its log is {self.log}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def page(self, address):
        """Opens an address in a tab of its own, which knows nothing of the others."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=address)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression):
        """What an expression of JavaScript comes to, within the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def is_shown(self, selector):
        return self.value(f"(e => e !== null && e.getClientRects().length > 0)(document.querySelector({json.dumps(selector)}))")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=False)

    def colours(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))

    def heard(self, method):
        """The events of that name so far."""
        with self.browser.changed:
            return [event["params"] for event in self.browser.events
                    if event.get("sessionId") == self.session and event["method"] == method]


def until(what, condition, seconds=30):
    """Waits until the condition is true, and gives what it came to."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise BrowserError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
