"""Compares two trees in full: names, content, links, modes, owners, times, extended attributes, devices."""
import os, stat

BLOCK = 1 << 20


def walk(top):
    """Every path below `top`, itself included as '.', relative and in order."""
    found = [b"."]
    for folder, folders, files in os.walk(os.fsencode(top)):
        inside = os.path.relpath(folder, os.fsencode(top))
        found += [os.path.normpath(os.path.join(inside, name)) for name in folders + files]
    return sorted(found)


def describe(path, times=True):
    s = os.lstat(path)
    kind = stat.S_IFMT(s.st_mode)
    out = {"kind": oct(kind), "mode": oct(stat.S_IMODE(s.st_mode)), "owner": (s.st_uid, s.st_gid)}
    if times:
        out["mtime"] = s.st_mtime_ns
    if kind != stat.S_IFDIR:
        out["links"] = s.st_nlink
    if kind == stat.S_IFREG:
        out["size"] = s.st_size
    if kind == stat.S_IFLNK:
        out["target"] = os.readlink(path)
    if kind in (stat.S_IFBLK, stat.S_IFCHR):
        out["device"] = s.st_rdev
    attributes = {}
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if not name.startswith("security.selinux"):
            attributes[name] = os.getxattr(path, name, follow_symlinks=False)
    out["xattrs"] = attributes
    return out


def first_difference(a, b):
    """Where two files differ, or None."""
    with open(a, "rb") as x, open(b, "rb") as y:
        offset = 0
        while True:
            p, q = x.read(BLOCK), y.read(BLOCK)
            if p != q:
                return offset + next((i for i, (m, n) in enumerate(zip(p, q)) if m != n), min(len(p), len(q)))
            if not p:
                return None
            offset += len(p)


def differences(left, right, ignore=lambda path: False, times=True, limit=20):
    """What is not equal, in words; nothing if the trees are the same."""
    a, b = ({p for p in walk(top) if not ignore(p)} for top in (left, right))
    found = [f"{os.fsdecode(p)}: only in {left}" for p in sorted(a - b)]
    found += [f"{os.fsdecode(p)}: only in {right}" for p in sorted(b - a)]
    groups = [{}, {}]
    for path in sorted(a & b):
        name = os.fsdecode(path)
        x, y = (os.path.join(os.fsencode(top), path) for top in (left, right))
        m, n = describe(x, times), describe(y, times)
        found += [f"{name}: {key} {m.get(key)!r} against {n.get(key)!r}" for key in m if m.get(key) != n.get(key)]
        if m["kind"] == n["kind"] == oct(stat.S_IFREG):
            if m["size"] == n["size"] and (at := first_difference(x, y)) is not None:
                found.append(f"{name}: content differs at byte {at} of {m['size']}")
            for group, file in zip(groups, (x, y)):
                group.setdefault(os.lstat(file).st_ino, set()).add(path)
    if sorted(map(sorted, groups[0].values())) != sorted(map(sorted, groups[1].values())):
        found.append("hard links: other names belong together")
    return found[:limit] + ([f"... and {len(found) - limit} more"] if len(found) > limit else [])


def assert_same(left, right, what, **options):
    found = differences(left, right, **options)
    assert not found, f"{what}: {left} and {right} differ:\n  " + "\n  ".join(found)


def is_shm(path):
    """SQLite's index of its write-ahead log: it is made anew by whoever opens the database, and is not recorded."""
    return path.endswith(b"-shm")
