"""The directory that a program works in: recorded by gazfs, or, to try the tests themselves, a plain one.

GAZFS_RECORDED=bare chooses the plain one, of which a recovery is a copy. GAZFS_BIN is the folder of the programs
`gazette` and `gazfs` (default: the release build).
"""
import json, os, shutil, signal, subprocess, tempfile, urllib.error, urllib.request

from .support import TARGET, die_with_parent, free_port, not_run, run, say, wait_until

BIN = os.environ.get("GAZFS_BIN") or os.path.join(TARGET, "release")
# Recovering may read everything again; a test machine is busy.
PATIENCE = 300


def recorded(name, **options):
    """The directory of a test, not yet started. It is closed by `with`, which leaves nothing behind."""
    if os.environ.get("GAZFS_RECORDED") == "bare":
        return Bare(name, **options)
    return Recorded(name, **options)


class Base:
    def __init__(self, name):
        self.base = tempfile.mkdtemp(prefix=f"gazfs-{name}-", dir=os.environ.get("PROGRAMS_DIR"))
        os.chmod(self.base, 0o755)
        self.path = os.path.join(self.base, "dir")
        os.mkdir(self.path)
        self.recoveries = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None or not os.environ.get("KEEP"):
            self.close()
            shutil.rmtree(self.base, ignore_errors=True)
        else:
            say(f"kept for you: {self.base}")
            self.close()

    def folder(self, name):
        """A folder for what the test itself keeps, outside of the recorded directory."""
        path = os.path.join(self.base, name)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o777)
        return path

    def elsewhere(self):
        """A path for the next recovery, which is another host to the program."""
        self.recoveries += 1
        return os.path.join(self.base, f"recovered-{self.recoveries}")


class Bare(Base):
    """A plain directory. Its daemon cannot be killed, and what was written is recovered by a copy."""

    kind = "bare"

    def start(self):
        pass

    def kill_daemon(self):
        pass

    def kill_broker(self):
        pass

    def start_broker(self):
        pass

    def restart(self):
        pass

    def flush(self):
        pass

    def stop(self):
        pass

    def close(self):
        pass

    def recover(self):
        to = self.elsewhere()
        run("cp", "-a", self.path, to)
        return to


class Recorded(Base):
    """A broker, and a mount that records into one log of it."""

    kind = "recorded"

    def __init__(self, name, options=(), log="programs/log", cpu=None):
        for program in ("gazette", "gazfs"):
            if not os.access(os.path.join(BIN, program), os.X_OK):
                not_run(f"{BIN}/{program} is not there; next: cargo build --release -p gazette-broker -p gazfs")
        if not os.access("/dev/fuse", os.W_OK):
            not_run("/dev/fuse does not open; next: run as root, on a machine with FUSE")
        super().__init__(name)
        self.log, self.cpu = log, cpu
        self.options = [*options, *os.environ.get("RECORD_OPTIONS", "").split()]
        self.work = os.path.join(self.base, "work")
        self.daemon = None
        self.broker = None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def _popen(self, log, *command):
        if self.cpu is not None:
            command = ("taskset", "-c", str(self.cpu), *command)
        with open(os.path.join(self.base, log), "a") as out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    start_new_session=True, preexec_fn=die_with_parent)

    def start_broker(self):
        self.broker = self._popen("broker.log", os.path.join(BIN, "gazette"), "serve", "--embedded",
                                  os.path.join(self.base, "broker"), "--broker.host", "127.0.0.1",
                                  "--broker.port", str(self.port))
        wait_until(self._broker_ready, 30, "the broker is ready")

    def kill_broker(self):
        self.broker.kill()
        self.broker.wait(30)

    def _broker_ready(self):
        assert self.broker.poll() is None, f"the broker ended: {self.tail('broker.log')}"
        try:
            with urllib.request.urlopen(f"{self.url}/debug/ready", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def start(self):
        """Mounts, after a recovery where there is a log already. The broker is started at need."""
        if self.broker is None:
            self.start_broker()
        # A dead mount may still look like one, so the announcement counts.
        before = self.tail("gazfs.log", 1 << 20).count("\nend it with: ")
        self.daemon = self._popen("gazfs.log", os.path.join(BIN, "gazfs"), "record", self.path, "--log", self.log,
                                  "--work", self.work, "--broker", self.url, *self.options)
        wait_until(lambda: self._announced() > before, PATIENCE, "the directory is mounted")

    def _announced(self):
        if self.daemon.poll() is not None:
            raise AssertionError(f"gazfs record ended with {self.daemon.returncode}: {self.tail('gazfs.log')}")
        return self.tail("gazfs.log", 1 << 20).count("\nend it with: ")

    def tail(self, log, length=2000):
        try:
            with open(os.path.join(self.base, log), errors="replace") as file:
                return file.read()[-length:]
        except FileNotFoundError:
            return ""

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait(30)

    def restart(self):
        """On the same host, with the working folder that the killed daemon left."""
        self.start()

    def flush(self):
        """Waits until all that was done is in the log."""
        run(os.path.join(BIN, "gazfs"), "flush", "--wait", self.path)

    def stop(self):
        """Ends in order. Nobody may use the mount any more."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            code = self.daemon.wait(PATIENCE)
            assert code == 0, f"gazfs record ends with {code}: {self.tail('gazfs.log')}"

    def close(self):
        for process in (self.daemon, self.broker):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        subprocess.run(["umount", "-l", self.path], capture_output=True)

    def recover(self, at=None):
        """Rebuilds from the log alone, in another process and another place."""
        return self.recover_at(at)[0]

    def recover_at(self, at):
        """The same, as of the last append that is not after `at`; returns also where that append ends."""
        to = self.elsewhere()
        more = [] if at is None else ["--at", str(at)]
        told = run(os.path.join(BIN, "gazfs"), "recover", "--log", self.log, "--to", to, "--broker", self.url, "--json",
                   *more, timeout=PATIENCE)
        return to, json.loads(told.splitlines()[-1])["offset"]

    def head(self):
        """Where the next byte of the log will be."""
        request = urllib.request.Request(f"{self.url}/{self.log}?offset=-1&block=false", method="HEAD")
        try:
            answer = urllib.request.urlopen(request, timeout=10)
        except urllib.error.HTTPError as error:   # nothing to read there yet, which is so at the head
            answer = error
        with answer:
            return int(answer.headers["X-Write-Head"])

    def read_log(self):
        """The bytes of the log up to its head."""
        with urllib.request.urlopen(f"{self.url}/{self.log}?offset=0&block=false", timeout=60) as answer:
            return answer.read()

    def rss_kib(self):
        with open(f"/proc/{self.daemon.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


class Up(Recorded):
    """What `gazfs up` offers: the broker is in the daemon's own process."""

    def __init__(self, name, **options):
        super().__init__(name, log="recovery/data", **options)
        up = os.path.join(self.base, "up")
        self.path, self.url = os.path.join(up, "data"), f"unix://{up}/gazfs.sock"

    def start(self):
        self.daemon = self._popen("gazfs.log", os.path.join(BIN, "gazfs"), "up", os.path.join(self.base, "up"), *self.options)
        wait_until(lambda: "\nend it with " in self.tail("gazfs.log"), PATIENCE, "the directory is mounted")

    def close(self):
        super().close()
        subprocess.run(["umount", "-l", os.path.join(self.base, "up", "journals")], capture_output=True)
