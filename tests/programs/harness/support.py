"""Small things: skipping loudly, waiting with a bound, processes, acknowledgements."""
import ctypes, os, random, shutil, signal, socket, subprocess, sys, time

TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gazfs/target")
# Where tests/run puts what no system package has.
sys.path.append(os.path.join(TARGET, "python"))
os.environ["PATH"] += f":/usr/sbin:{TARGET}/tools/bin:{os.path.expanduser('~/.cargo/bin')}"

NOT_RUN = 77   # exit code of a test that did not run, as automake has it


def not_run(why):
    """Ends the test without a verdict. The runner makes sure that it is seen."""
    print(f"NOT RUN: {why}", flush=True)
    sys.exit(NOT_RUN)


def need(*programs, packages=""):
    """Returns the paths of programs that the test runs; without one of them it does not run."""
    found = []
    for program in programs:
        path = shutil.which(program)
        if path is None:
            not_run(f"{program} is not there; next: install {packages or program}")
        found.append(path)
    return found


def say(text):
    print(text, flush=True)


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ended(pid):
    """Whether a process is gone, also where nobody reaps it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Child:
    """A function in a process of its own that kill -9 ends, and nothing else."""

    def __init__(self, function, *arguments):
        sys.stdout.flush()
        self.status = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                die_with_parent()
                function(*arguments)
                code = 0
            except BaseException as error:   # a child never returns into its parent's code
                self._tell(error)
            os._exit(code)

    @staticmethod
    def _tell(error):
        os.write(2, f"  load ends: {type(error).__name__}: {error}\n".encode())

    def poll(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status

    def wait(self, seconds):
        wait_until(lambda: self.poll() is not None, seconds, f"process {self.pid} ends")
        return self.status

    def kill(self):
        """Ends the process and what it started."""
        if self.poll() is None:
            kill_group(self.pid)
            self.wait(30)


def die_with_parent():
    """Ends this process by SIGKILL when the test ends, however it does."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(pid):
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def in_child(function, *arguments):
    """Calls a function that leaves threads behind in a process of its own, and returns the number it returns."""
    read, write = os.pipe()
    child = Child(lambda: os.write(write, str(function(*arguments)).encode()))
    os.close(write)
    with open(read) as answer:
        text = answer.read()
    assert child.wait(60) == 0, "see above"
    return text if text == "None" else int(text)


class Acknowledged:
    """What a program was promised: one line each, in a file outside of the recorded directory."""

    def __init__(self, folder, name="acknowledged"):
        self.path = os.path.join(folder, name)
        open(self.path, "a").close()
        self._file = None

    def add(self, line):
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.write(self._file, f"{line}\n".encode())

    def count(self):
        return os.path.getsize(self.path)

    def lines(self):
        with open(self.path) as file:
            text = file.read()
        return text.split("\n")[:-1]   # a line without its end was never promised


def seeded(description):
    """A source of randomness whose seed is printed, and can be given again by SEED."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    say(f"{description}: SEED={seed}")
    return random.Random(seed)


def run(*command, **options):
    """Runs a command that must succeed; returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, **{"timeout": 300, **options})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ends with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
