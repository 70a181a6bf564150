# Shared by up and down: where the state lies, and which process is ours. Sourced, never run.
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
UNAVAILABLE=69 # LocalStack cannot start on this machine as it is; 1 is for what should have worked.

port=${LOCALSTACK_PORT:-4566}
export LOCALSTACK_PORT=$port
home=${LEASEHOLD_LOCALSTACK_HOME:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/leasehold/localstack}

# Standard output is for the environment lines alone, so that a shell can read them.
say() { printf 'localstack: %s\n' "$*" >&2; }

die() { # die CODE SENTENCE...
  local code=$1
  shift
  say "$@"
  exit "$code"
}

tail_of() { # tail_of FILE: its last lines, without those that tell of every request
  [[ -s $1 ]] || return 0
  say "the last lines of $1:"
  grep -v ' INFO ' "$1" | tail -n 30 | sed 's/^/    /' >&2 || true
}

# One caller at a time installs, starts or stops. The lock ends with the process that holds it, however it ends.
enter() {
  [[ $port =~ ^[0-9]{1,5}$ ]] || die 64 "LOCALSTACK_PORT must be a port number, not '$port'."
  mkdir -p "$home" ||
    die $UNAVAILABLE "cannot create $home; set LEASEHOLD_LOCALSTACK_HOME to a folder that can be written."
  home=$(cd "$home" && pwd -P)
  run=$home/run-$port
  command -v flock >/dev/null || return 0
  exec 9>"$home/lock"
  flock -n 9 && return
  say "another up or down is at work, waiting for it."
  flock -w 900 9 || die 1 "gave up waiting for it."
}

docker_works() {
  command -v docker >/dev/null &&
    limit 15 docker info --format '{{.ServerVersion}}' >/dev/null 2>&1 &&
    docker compose version >/dev/null 2>&1
}

limit() { # limit SECONDS COMMAND...: macOS has no timeout
  if command -v timeout >/dev/null; then timeout "$@"; else "${@:2}"; fi
}

compose() { docker compose -f "$here/compose.yaml" "$@"; }

# A number in a file may by now belong to somebody else's process. Ours, and the engine that it starts, carry
# the root folder of this instance in their environment.
is_ours() { # is_ours PID
  [[ -n $1 ]] && tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | grep -qxF "FILESYSTEM_ROOT=$run/fs"
}

written_pid() { # written_pid FILE: the number in it, if that process runs and is ours
  local pid
  pid=$(cat "$run/$1" 2>/dev/null) && is_ours "$pid" && printf '%s' "$pid"
}
