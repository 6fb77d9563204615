# What the case runner needs of this project: one broker and one mount of its journals, in a
# temporary folder, for each case. Sourced by the runner; `finish` leaves nothing behind.
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
P=case
S=$DATA/fragments/$P       # of them behind file:///
J=$MOUNT/$P
D=$BASE/recorded           # recorded directories: a later release
mkdir -p "$MOUNT" "$D" "$DATA"
BROKER_PID='' MOUNT_PID='' PROXY_PID=''

free_port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
PORT=$(free_port)
PROXY_PORT=$(free_port)
DIRECT=http://127.0.0.1:$PORT
PROXY=http://127.0.0.1:$PROXY_PORT
B=$PROXY/$P
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
bstop() { kill -TERM "$BROKER_PID"; wait_for 60 gone "$BROKER_PID"; }
bkill() { kill -9 "$BROKER_PID"; wait_for 10 gone "$BROKER_PID"; }
bpause() { kill -STOP "$BROKER_PID"; }
bresume() { kill -CONT "$BROKER_PID"; }
brestart() { bstop "$@"; bstart "$@"; }
brestart_primary() { brestart all; }
balive() { kill -0 "$BROKER_PID" && curl -sf -m 5 "$DIRECT/debug/ready" >/dev/null; }
brss() { awk '/^VmRSS:/ {print $2}' "/proc/$BROKER_PID/status"; }
burl() { echo "$DIRECT/$P"; }
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
  local name=$1 store=file:/// codec=NONE flags=O_RDWR; shift
  local arg; for arg in "$@"; do case $arg in
    store=*) store=$(store_url "${arg#store=}") ;; codec=*) codec=${arg#codec=} ;; flags=*) flags=${arg#flags=} ;;
    *) echo "adapter: jcreate does not know $arg" >&2; return 1 ;; esac; done
  cat <<Y
- name: $P/$name
  replication: 1
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
jdelete() { "$BIN/gazctl" journals delete -l "name=$P/$1" --fragments >/dev/null; }
jlist() { "$BIN/gazctl" journals list -o json | python3 -c 'import json,sys; [print(j["spec"]["name"].removeprefix("case/")) for j in json.load(sys.stdin)["journals"]]'; }
jread() { curl -sf "$DIRECT/$P/$1"; }
field() { "$BIN/gazctl" journals list -l "name=$P/$1" -o json | python3 -c '
import json,sys
j=json.load(sys.stdin)["journals"][0]
print({"revision": j["mod_revision"], "suspend": ((j["spec"].get("suspend") or {}).get("level") or "NONE")}[sys.argv[1]])' "$2"; }
jstate() { case $(field "$1" suspend) in NONE) echo active ;; *) echo suspended ;; esac; }
jsuspend() { "$BIN/gazctl" journals suspend -l "name=$P/$1" -f >/dev/null; wait_for 10 is_suspended "$1"; }
is_suspended() { [ "$(jstate "$1")" = suspended ]; }
rewrite() { # NAME key=value ...: the spec anew, at any revision
  local name=$1
  { spec "$@" | sed '$a\  revision: -1'; } | japply
}
jsetstore() { rewrite "$1" "store=$2"; sleep 0.5; }
breadonly() { rewrite "$1" flags=O_RDONLY; sleep 0.5; }
bwritable() { rewrite "$1" flags=O_RDWR; sleep 0.5; }
papp() { curl -sS -f -X PUT -T - -H 'Expect:' "$DIRECT/$P/$1"; }
# Always run in the background: its process is the one that `kill` is told.
follow() { local name=$1; shift; exec "$BIN/gazctl" journals read -b -l "name=$P/$name" "$@"; }
bflush() { "$BIN/gazctl" journals flush -l "name=$P/$1" --timeout 30s >/dev/null; }
put_fragment() { later put_fragment; }

# --- recorded directories: a later release ---
for f in rmount rumount rkill rpause rresume rrecover rstandby rpromote rhandoff rprune rcompact rcheck rfork rflush rstatus rlogbytes rlogstored rlastrecoverykb; do
  eval "$f() { later $f; }"
done

start_mount() {
  daemon "$BASE/mount.log" "$BIN/gazfs" mount "$MOUNT" --broker "$PROXY" --allow-delete
  MOUNT_PID=$DAEMON_PID
  wait_for 20 mountpoint -q "$MOUNT"
}
finish() {
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
