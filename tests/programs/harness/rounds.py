"""The rounds that every program goes through: work, a sudden end, recovery elsewhere, judgement, and on again.

A program is an object with
    prepare(directory)        makes what the program needs, once
    start(directory) -> load  starts the program and the load on it; `load.kill()` is kill -9 of all of it,
                              `load.finish()` lets it end in order
    verify(folder)            judges a folder that nobody uses: the program's own checker, and everything that
                              was acknowledged. It may change the folder.
"""
import os, shutil, time

from .support import say, wait_until
from .tree import assert_same, is_shm


class Writers:
    """A load of functions in processes of their own, which end when the file `stop` is there."""

    def __init__(self, stop, *children):
        self.stop, self.children = stop, children

    def kill(self):
        for child in self.children:
            child.kill()

    def finish(self):
        open(self.stop, "w").close()
        for child in self.children:
            status = child.wait(120)
            assert status == 0, f"a writer failed, with status {status}"
        os.unlink(self.stop)


class Served:
    """A load of a server, and a function in a process of its own that writes to it."""

    def __init__(self, server, child):
        self.server, self.child = server, child

    def kill(self):
        self.server.kill()
        self.child.kill()

    def finish(self):
        self.child.kill()   # what it was not told it does not count
        self.server.finish()


ENDINGS = ("daemon", "program", "both", "broker", "none")


def run_rounds(program, directory, random, endings, seconds=(0.5, 2.5)):
    """Goes through `endings` in turn: what is killed by kill -9. `none` is an orderly end."""
    program.prepare(directory)
    for number, ending in enumerate(endings, 1):
        began = time.monotonic()
        load = program.start(directory)
        time.sleep(random.uniform(*seconds))
        end(ending, program, load, directory, random)
        judge(ending, program, directory)
        say(f"  round {number}: killed {ending:<8} ok, {program.state()}, {time.monotonic() - began:.1f} s")


def end(ending, program, load, directory, random):
    if ending == "none":
        load.finish()
    elif ending == "program":
        load.kill()
    elif ending == "broker":
        directory.kill_broker()
        time.sleep(random.uniform(0, 1))
        directory.start_broker()
        # All of it goes on by itself.
        promised = program.acknowledged.count()
        wait_until(lambda: program.acknowledged.count() > promised, 60, "the program goes on after the broker was away")
        load.kill()
    elif ending == "daemon":
        directory.kill_daemon()
        # The program sees a dead mount for a while. It cannot be asked to end: it may hang in nothing.
        time.sleep(random.uniform(0, 0.5))
        load.kill()
    else:
        first, second = random.sample([load.kill, directory.kill_daemon], 2)
        first()
        second()


def judge(ending, program, directory):
    daemon_lives = ending in ("none", "program", "broker")
    if daemon_lives:
        directory.flush()
    copy = directory.recover()
    if daemon_lives:
        assert_same(directory.path, copy, "a recovery, nothing being in flight", ignore=is_shm)
    else:
        directory.restart()
        assert_same(directory.path, copy, "a restart on the same host, and a recovery", ignore=is_shm)
    program.verify(copy)
    shutil.rmtree(copy)
