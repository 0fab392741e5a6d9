"""Chromium, or Firefox, for tests in Python, by the driver of Tests/WebPage in node. Instants are those of CLOCK_MONOTONIC, in ns."""
import itertools, json, os, pathlib, queue, subprocess, threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["chromium", "nodejs"]
ANSWER_S = 120
CLOCK_TRIES = 9

# What the page was told, and when it was: before any of its own listeners. And when its thread was late.
MARKS = """window.marks = []; window.late = []; let last = performance.now();
setInterval(() => {
  const now = performance.now();
  if (now - last > 40) late.push([now, now - last - 20]);
  last = now;
}, 20);
for (const type of ["pointerdown", "pointerup", "keydown", "keyup"])
  addEventListener(type, event => event.repeat || marks.push([type, event.timeStamp, performance.now()]), true);"""


class Failed(SystemExit):
    """The browser or a page did not do what was asked."""


class Browser:
    """One browser. A context manager: leaving it ends the browser."""

    def __init__(self, environment=None, microphone="", flags=(), within=(), is_firefox=False):
        """`within`: what is before its command, such as ip netns exec."""
        self.is_firefox = is_firefox
        self.process = subprocess.Popen(
            [*within, "node", "--experimental-default-type=module", "--no-warnings", ROOT / "Tests/WebPage/support/driver.js", microphone, *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "BROWSER": "firefox" if is_firefox else "chromium", **(environment or {})})
        self.numbers, self.waiting, self.lock = itertools.count(1), {0: queue.Queue()}, threading.Lock()
        ready = self.waiting[0]
        threading.Thread(target=self._read, daemon=True).start()
        self._taken(0, ready, "the browser's start")

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            self.waiting.pop(answer["id"]).put(answer)
        for waiting in list(self.waiting.values()):
            waiting.put({"error": "the browser's driver has ended"})

    def _taken(self, number, waiting, what):
        try:
            answer = waiting.get(timeout=ANSWER_S)
        except queue.Empty:
            raise Failed(f"no answer to {what} within {ANSWER_S} s") from None
        if "error" in answer:
            raise Failed(f"{what}: {answer['error']}")
        return answer

    def tell(self, what, **request):
        """(number, where its answer will be)"""
        number, waiting = next(self.numbers), queue.Queue()
        self.waiting[number] = waiting
        with self.lock:
            self.process.stdin.write(json.dumps({"id": number, "do": what, **request}) + "\n")
            self.process.stdin.flush()
        return number, waiting

    def ask(self, what, **request):
        """The whole answer: {"is": …, "at": ns, "done": ns}."""
        number, waiting = self.tell(what, **request)
        return self._taken(number, waiting, " ".join([what, *(str(request[k]) for k in ("selector", "key", "method", "with") if k in request)]))

    def send(self, method, **params):
        return self.ask("send", method=method, params=params)["is"]

    def set_priority(self, nice):
        """Of all its processes, which a browser gives priorities of its own; not of those that show its own windows, nor of Firefox."""
        if self.is_firefox:
            return
        for process in self.send("SystemInfo.getProcessInfo")["processInfo"]:
            try:
                if b"--top-chrome-webui" in pathlib.Path(f"/proc/{process['id']}/cmdline").read_bytes():
                    continue
                for thread in pathlib.Path(f"/proc/{process['id']}/task").iterdir():
                    if os.sched_getscheduler(int(thread.name)) == os.SCHED_OTHER:
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
            except (OSError, PermissionError):
                continue        # it has ended, or may not

    def page(self, url, before="", **options):
        return Page(self, self.ask("page", url=url, options={"before": before + MARKS, **options})["is"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Page:
    def __init__(self, browser, number):
        self.browser, self.number, self.offset = browser, number, None

    def ask(self, what, **request):
        return self.browser.ask(what, page=self.number, **request)

    def do(self, what, *arguments):
        return self.ask(what, **{"with": arguments})["is"]

    def value(self, expression):
        return self.do("value", expression)

    def until(self, what, expression, milliseconds=15_000):
        """When it was so; ns."""
        return self.ask("until", **{"with": [what, expression, milliseconds]})["done"]

    def clock(self):
        """The instant at which performance.now() was 0: what a page tells lies on the clock of all others by it."""
        best = None
        for _ in range(CLOCK_TRIES):
            answer = self.ask("value", **{"with": ["performance.now()"]})
            took = answer["done"] - answer["at"]
            if best is None or took < best[0]:
                best = took, (answer["at"] + answer["done"]) / 2 - answer["is"] * 1e6
        return best[1]

    def marks(self):
        """[(what, when the browser was told, when the page was)] since it was opened."""
        offset = self.clock()
        return [(kind, offset + stamp * 1e6, offset + now * 1e6) for kind, stamp, now in self.value("window.marks")]

    def lateness(self):
        """[(when, by how many ms)] its thread was late."""
        offset = self.clock()
        return [(offset + now * 1e6, by) for now, by in self.value("window.late")]

    def press(self, selector, index=0):
        return self.ask("press", selector=selector, index=index)["at"]

    def release(self):
        return self.ask("release")["at"]

    def key(self, kind, key, code):
        return self.ask("key", type=kind, key=key, code=code)["at"]

    def crash(self):
        """As of a fault in its program; there is no answer from a page that crashes."""
        self.browser.tell("send", page=self.number, **{"with": ["Page.crash"]})

    def errors(self):
        return self.ask("errors")["is"]
