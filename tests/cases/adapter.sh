# What the case runner needs of this project: one broker, a mount of its journals and a recorded
# directory, in a temporary folder, for each case. Sourced by the runner; `finish` leaves nothing
# behind.
#
# GAZFS_BIN: folder of the programs gazette, gazctl and gazfs (default: the release build).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
BIN=${GAZFS_BIN:-${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/gazfs/target}/release}
for program in gazette gazctl gazfs; do
  [ -x "$BIN/$program" ] || { echo "adapter: $BIN/$program is not there; next: cargo build --release" >&2; exit 1; }
done

BASE=$(mktemp -d -t gazfs-case-XXXXXX)
DATA=$BASE/broker          # of the broker
MOUNT=$BASE/journals
# Cases call their journals t/c, which is too short a name by itself: all are below this folder.
PREFIX=case
S=$DATA/fragments/$PREFIX       # of them behind file:///
J=$MOUNT/$PREFIX
D=$BASE/recorded
WORK=$BASE/work            # of the recorded directory
LOG=$PREFIX/recovery/t          # its recovery log
export LOCALSTATE=$WORK    # where what was never recorded is set aside
# Where cases let others stand by.
X=$BASE/other
W2=$BASE/other.work
mkdir -p "$MOUNT" "$D" "$DATA" "$X"
BROKER_PID='' MOUNT_PID='' PROXY_PID=''

free_port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
PORT=$(free_port)
PROXY_PORT=$(free_port)
DIRECT=http://127.0.0.1:$PORT
PROXY=http://127.0.0.1:$PROXY_PORT
B=$PROXY/$PREFIX
export BROKER_ADDRESS=$PROXY

no() { if "$@" >/dev/null 2>&1; then return 1; fi; }
same() { diff -r -x '*-shm' "$1" "$2"; }
later() { echo "adapter: $1 belongs to a later release of this project" >&2; return 1; }
wait_for() { # SECONDS CMD...
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "adapter: waited in vain for: $*" >&2; return 1; }; sleep 0.1; done
}
# Ended, also where nobody reaps orphans.
gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
# Starts a program that is no child of the case's shell: its `wait` shall wait for its own only.
daemon() { # LOG CMD...: sets DAEMON_PID
  local log=$1; shift
  DAEMON_PID=$( "$@" >>"$log" 2>&1 </dev/null & echo $! )
}

# --- the broker, and a proxy before it whose connections can be dropped ---
bstart() {
  daemon "$BASE/broker.log" "$BIN/gazette" serve --embedded "$DATA" \
    --broker.host 127.0.0.1 --broker.port "$PORT"
  BROKER_PID=$DAEMON_PID
  wait_for 30 curl -sf "$DIRECT/debug/ready"
}
bstop() { save_specs; kill -TERM "$BROKER_PID"; wait_for 60 gone "$BROKER_PID"; }
# What the coordination store has, for whoever loses it.
save_specs() { "$BIN/gazctl" journals list -o yaml >"$BASE/specs.yaml" || true; }
etcd_wipe() { find "$DATA" -maxdepth 1 -name 'coordination*' -delete; }
japply_saved() { sed '/^ *revision:/d' "$BASE/specs.yaml" | "$BIN/gazctl" journals apply --specs - >/dev/null; }
breset_heads() { "$BIN/gazctl" journals reset-head -l "prefix=$PREFIX/" >/dev/null; }
bkill() { kill -9 "$BROKER_PID"; wait_for 10 gone "$BROKER_PID"; }
bpause() { kill -STOP "$BROKER_PID"; }
bresume() { kill -CONT "$BROKER_PID"; }
brestart() { bstop "$@"; bstart "$@"; }
brestart_primary() { brestart all; }
balive() { kill -0 "$BROKER_PID" && curl -sf -m 5 "$DIRECT/debug/ready" >/dev/null; }
brss() { awk '/^VmRSS:/ {print $2}' "/proc/$BROKER_PID/status"; }
burl() { echo "$DIRECT/$PREFIX"; }
start_proxy() {
  cat >"$BASE/proxy.py" <<'P'
import asyncio, signal, sys
links = set()
async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data); await writer.drain()
        if writer.can_write_eof(): writer.write_eof()
    except Exception: writer.transport.abort()
async def serve(reader, writer):
    try: up_reader, up_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    except OSError: writer.transport.abort(); return
    link = (writer, up_writer); links.add(link)
    await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))
    links.discard(link); writer.close(); up_writer.close()
def drop():
    for a, b in list(links): a.transport.abort(); b.transport.abort()
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, drop)
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as s: await s.serve_forever()
asyncio.run(main())
P
  daemon "$BASE/proxy.log" python3 "$BASE/proxy.py" "$PROXY_PORT" "$PORT"
  PROXY_PID=$DAEMON_PID
  wait_for 10 curl -sf "$PROXY/debug/ready"
}
bdropconns() { kill -USR1 "$PROXY_PID"; sleep 0.2; }

# --- journals ---
spec() { # NAME [key=value ...] → a YAML spec
  local name=$1 store=file:/// codec=NONE flags=O_RDWR replication=1; shift
  local arg; for arg in "$@"; do case $arg in
    store=*) store=$(store_url "${arg#store=}") ;; codec=*) codec=${arg#codec=} ;; flags=*) flags=${arg#flags=} ;; replication=*) replication=${arg#replication=} ;;
    *) echo "adapter: jcreate does not know $arg" >&2; return 1 ;; esac; done
  cat <<Y
- name: $PREFIX/$name
  replication: $replication
  flags: $flags
  fragment: {length: 67108864, compression_codec: $codec, stores: ["$store"], refresh_interval: 1s}
Y
}
# The cases name a store by the folder that is behind it; the broker's stores are relative to its root.
store_url() { local p=${1#file://}; case $p in "$S"|"$S"/) echo file:/// ;; *) echo "file://${p%/}/" ;; esac; }
tree() { echo 'name: ""'; echo 'children:'; cat; }
japply() { tree | "$BIN/gazctl" journals apply --specs - >/dev/null; }
seen() { [ -e "$J/$1" ]; }
jcreate() { spec "$@" | japply; wait_for 10 seen "$1"; }
jcreate_bulk() { local n; sort -u | while read -r n; do spec "$n"; done | { tree; } | "$BIN/gazctl" journals apply --specs - --max-txn-size 100 >/dev/null; sleep 1; }
jdelete() { "$BIN/gazctl" journals delete -l "name=$PREFIX/$1" --fragments >/dev/null; }
jlist() { "$BIN/gazctl" journals list -o json | python3 -c 'import json,sys; [print(j["spec"]["name"].removeprefix("case/")) for j in json.load(sys.stdin)["journals"]]'; }
jread() { curl -sf "$DIRECT/$PREFIX/$1"; }
field() { "$BIN/gazctl" journals list -l "name=$PREFIX/$1" -o json | python3 -c '
import json,sys
j=json.load(sys.stdin)["journals"][0]
print({"revision": j["mod_revision"], "suspend": ((j["spec"].get("suspend") or {}).get("level") or "NONE")}[sys.argv[1]])' "$2"; }
jstate() { case $(field "$1" suspend) in NONE) echo active ;; *) echo suspended ;; esac; }
jsuspend() { "$BIN/gazctl" journals suspend -l "name=$PREFIX/$1" -f >/dev/null; wait_for 10 is_suspended "$1"; }
is_suspended() { [ "$(jstate "$1")" = suspended ]; }
rewrite() { # NAME key=value ...: the spec anew, at any revision
  local name=$1
  { spec "$@" | sed '$a\  revision: -1'; } | japply
}
jsetstore() { rewrite "$1" "store=$2"; sleep 0.5; }
breadonly() { rewrite "$1" flags=O_RDONLY; sleep 0.5; }
bwritable() { rewrite "$1" flags=O_RDWR; sleep 0.5; }
papp() { curl -sS -f -X PUT -T - -H 'Expect:' "$DIRECT/$PREFIX/$1"; }
# Always run in the background: its process is the one that `kill` is told.
follow() { local name=$1; shift; exec "$BIN/gazctl" journals read -b -l "name=$PREFIX/$name" "$@"; }
bflush() { "$BIN/gazctl" journals flush -l "name=$PREFIX/$1" --timeout 30s >/dev/null; }
put_fragment() { later put_fragment; }
# Of names as list items: specs that replace whatever is there.
jspec() { sed -n 's/^- name: //p' | LC_ALL=C sort | while read -r name; do spec "$name"; echo '  revision: -1'; done | tree; }
jget() { "$BIN/gazctl" journals list -l "name=$PREFIX/$1" -o yaml; }

# --- recorded directories ---
# Each has a mount point, a work folder and a daemon, whose number is in a file: hosts are started
# in sub-shells too.
host_dir() { case ${1:-} in '') echo "$D" ;; *) echo "$BASE/hosts/$1/dir" ;; esac; }
start_recorder() { # MOUNTPOINT WORK LOG [OPTION...]
  local more=("${@:4}")
  mkdir -p "$BASE/daemons"
  # A dead mount is there, but cannot be looked at.
  mkdir -p "$1" 2>/dev/null || grep -q " $1 " /proc/self/mountinfo
  daemon "$1.log" "$BIN/gazfs" record "$1" --work "$2" --log "$3" --broker "$PROXY" "${more[@]}"
  echo "$DAEMON_PID" >"$BASE/daemons/$(basename "$(dirname "$1")")-$(basename "$1")"
  local pid=$DAEMON_PID
  started() { gone "$pid" || mounted_by "$1" "$pid"; }
  wait_for 60 started "$1"
  mounted_by "$1" "$pid" || { tail -n 3 "$1.log" >&2; return 1; }
}
mounted_by() { grep -q " $1 [^-]* - fuse[^ ]* gazfs:$2 " /proc/self/mountinfo; }
recorder_pid() { cat "$BASE/daemons/$(basename "$(dirname "$D")")-$(basename "$D")"; }
rmount() { start_recorder "$D" "$WORK" "$LOG"; }
rumount() { "$BIN/gazfs" umount "$D"; }
rkill() { local pid; pid=$(recorder_pid); kill -9 "$pid"; wait_for 10 gone "$pid"; }
rpause() { kill -STOP "$(recorder_pid)"; }
rresume() { kill -CONT "$(recorder_pid)"; }
rrecover() { # [HOST] [DIR]: from the log alone
  local to=${2:-}
  [ -n "$to" ] || to=$(mktemp -u "$BASE/recovered-${1:-host}-XXXXXX")
  "$BIN/gazfs" recover --log "$LOG" --to "$to" --broker "$DIRECT" --json >"$BASE/recovery.json" || return
  echo "$to"
}
# A recovered copy goes on as a recorded directory: it is what the log says, so that is mounted there.
rmount_existing() { mv "$1" "$1.recovered"; mkdir "$1"; D=$1 WORK=$1.work rmount; }
# Another host takes the directory over, whatever its owner does: a standby, or one that was not there before.
rpromote() {
  local dir; dir=$(host_dir "$1")
  if [ -e "$BASE/daemons/$1-dir" ]; then
    "$BIN/gazfs" handoff --log "$LOG" --to "$1" --force --broker "$DIRECT" >&2
    wait_for 30 mounted_by "$dir" "$(cat "$BASE/daemons/$1-dir")"
  else
    start_recorder "$dir" "$BASE/hosts/$1/work" "$LOG" --take-over --id "$1" >&2
  fi
  echo "$dir"
}
rstandby() {
  local dir; dir=$(host_dir "$1")
  mkdir -p "$dir" "$BASE/daemons"
  daemon "$dir.log" "$BIN/gazfs" standby "$dir" --work "$BASE/hosts/$1/work" --log "$LOG" --id "$1" --broker "$PROXY"
  wait_for 60 grep -q '^standing by' "$dir.log"
  echo "$DAEMON_PID" >"$BASE/daemons/$1-dir"
}
# In order: the standby is there first.
rhandoff() {
  local dir; dir=$(host_dir "$1")
  [ -e "$BASE/daemons/$1-dir" ] || rstandby "$1" >&2
  "$BIN/gazfs" handoff --log "$LOG" --to "$1" --broker "$DIRECT" >&2
  wait_for 30 mounted_by "$dir" "$(cat "$BASE/daemons/$1-dir")"
  echo "$dir"
}
rflush() { "$BIN/gazfs" flush "$D" --wait; "$BIN/gazctl" journals flush -l "name=$LOG" --timeout 30s >/dev/null; }
# Its exit code tells how it is, too; cases read what it says.
rstatus() { "$BIN/gazfs" status "$D" "$@" || { local rc=$?; [ $rc = 3 ] || [ $rc = 4 ]; }; }
number() { python3 -c 'import json,sys; print(int(json.load(sys.stdin)[sys.argv[1]]))' "$1"; }
rlogbytes() { rstatus --json | number acked_offset; }
rlogstored() { find "$S/recovery/t" -type f -printf '%s\n' 2>/dev/null | awk '{n += $1} END {print n + 0}'; }
rlastrecoverykb() { echo $(($(number bytes_read <"$BASE/recovery.json") / 1024)); }
for f in rprune rcompact rcheck rfork; do
  eval "$f() { later $f; }"
done

# --- programs that cases run by `timeout`, and so must be programs ---
write_programs() {
  mkdir -p "$BASE/bin"
  cp "$BIN/gazfs" "$BASE/bin/gazfs"
  cat >"$BASE/bin/gazfs_mount" <<P
#!/usr/bin/env bash
# Mounts a recorded directory, and returns when it is there, or why it is not.
name=t standby=
while [ \$# -gt 0 ]; do case \$1 in
  --standby) standby=1; shift ;;
  --mount) mount=\$2; shift 2 ;; --work) work=\$2; shift 2 ;; --name) name=\$2; shift 2 ;; *) exit 2 ;; esac; done
if [ -n "\$standby" ]; then
  echo \$\$ >"$BASE/daemons/\$\$"
  exec "$BASE/bin/gazfs" standby "\$mount" --read-only-mount --work "\$work" --log "$PREFIX/recovery/\$name" --broker "$PROXY"
fi
out=\$(mktemp)
"$BASE/bin/gazfs" record "\$mount" --work "\$work" --log "$PREFIX/recovery/\$name" --broker "$PROXY" >"\$out" 2>&1 </dev/null &
pid=\$!
echo \$pid >"$BASE/daemons/\$pid"
until grep -q " - fuse[^ ]* gazfs:\$pid " /proc/self/mountinfo; do
  kill -0 \$pid 2>/dev/null || { wait \$pid; rc=\$?; cat "\$out" >&2; exit \$rc; }
  sleep 0.05
done
P
  printf '#!/bin/sh\nexec "%s/gazctl" journals apply --specs "$1"\n' "$BIN" >"$BASE/bin/jlist_apply"
  printf '#!/bin/sh\nexec "%s/gazctl" journals apply --dry-run --specs "$1"\n' "$BIN" >"$BASE/bin/gazfs_check"
  printf '#!/bin/sh\nexec "%s/bin/gazfs" doctor "$@"\n' "$BASE" >"$BASE/bin/gazfs_doctor"
  cat >"$BASE/bin/in_env" <<'P'
#!/usr/bin/env bash
# Runs a command where something is missing. As a user without privilege, but for no-device and
# uring-off, which are about the machine.
env=$1; shift
nobody='setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs'
open_device='mount -t tmpfs tmpfs /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse'
no_helper='for f in /usr/bin/fusermount3 /usr/bin/fusermount; do [ ! -e $f ] || mount --bind /dev/null $f; done'
case $env in
  no-device) setup='mount -t tmpfs tmpfs /mnt; for d in null zero urandom tty; do cp -a /dev/$d /mnt; done; mount --bind /mnt /dev' as='' ;;
  no-fusermount | no-userns) setup="$open_device; $no_helper" as=$nobody ;;
  device-denied) setup='chmod 600 /dev/fuse' as=$nobody ;;
  uring-off) setup=: as='' ;;
  *) exit 2 ;;
esac
exec unshare -m sh -c "mkdir -p /m /w; mount -t tmpfs tmpfs /m; mount -t tmpfs tmpfs /w
  chown 65534 /m /w; $setup
  exec $as \"\$@\"" sh "$@"
P
  chmod 755 "$BASE" "$BASE/bin" "$BASE"/bin/*
  mkdir -p -m 1777 "$BASE/daemons"
  export PATH=$BASE/bin:$PATH
}

start_mount() {
  daemon "$BASE/mount.log" "$BIN/gazfs" mount "$MOUNT" --broker "$PROXY" --allow-delete
  MOUNT_PID=$DAEMON_PID
  wait_for 20 mountpoint -q "$MOUNT"
}
finish() {
  local pid point
  for pid in $(cat "$BASE"/daemons/* || true); do kill -9 "$pid"; done
  for point in $(awk -v base="$BASE/" 'index($5, base) == 1 && $5 != "'"$MOUNT"'" {print $5}' /proc/self/mountinfo); do umount -l "$point"; done
  rmdir /m /w
  for p in "$BROKER_PID" "$MOUNT_PID"; do [ -z "$p" ] || kill -CONT "$p" || true; done
  [ -z "$MOUNT_PID" ] || { kill -TERM "$MOUNT_PID" || true; wait_for 5 gone "$MOUNT_PID" || kill -9 "$MOUNT_PID"; }
  mountpoint -q "$MOUNT" && umount -l "$MOUNT"
  [ -z "$BROKER_PID" ] || { kill -TERM "$BROKER_PID" || true; wait_for 10 gone "$BROKER_PID" || kill -9 "$BROKER_PID"; }
  [ -z "$PROXY_PID" ] || kill -9 "$PROXY_PID"
  [ -n "${GAZFS_KEEP:-}" ] || rm -rf "$BASE"
} 2>/dev/null

trap 'finish >/dev/null 2>&1 || true' EXIT
bstart all
start_proxy
start_mount
write_programs
# Cases about journals alone need no recorded directory.
if grep -qE '[$]\{?D\b|^r[a-z]+\b|[ (;]r(mount|umount|kill|pause|recover|promote|flush|status)\b' "$0"; then rmount; fi
