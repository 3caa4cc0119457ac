#!/usr/bin/env bash
# engine.sh start|stop|purge: a Docker engine on a machine without systemd.
#   start  finds the engine that answers; only where none does, starts a private one. Prints DOCKER_HOST=...
#   stop   ends the private engine and its containers; what it stored stays
#   purge  the same, and removes what it stored
# An engine that was there before is never touched. Two engines on one machine would share the firewall's chains, so
# this starts none beside another.
set -euo pipefail
dir=${KLAMM_ENGINE_DIR:-/var/tmp/klamm-docker} # short: the sockets below it must stay under 108 bytes
sock=unix://$dir/docker.sock

answers() { timeout 10 docker -H "$1" version -f '{{.Server.Version}}' >/dev/null 2>&1; }

ours() { # the pid of the live dockerd that the pid file names
  local pid
  [ -s "$dir/pid" ] && pid=$(cat "$dir/pid") || return 1
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && grep -q '^State:[[:space:]]*[^ZX]' "/proc/$pid/status" && echo "$pid"
}

case ${1:-} in
start)
  usual=${DOCKER_HOST:-$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null || true)}
  for host in "${usual:-unix:///var/run/docker.sock}" "$sock"; do
    if answers "$host"; then echo "DOCKER_HOST=$host"; exit 0; fi
  done
  command -v dockerd >/dev/null || {
    echo "No Docker engine answers and none is installed. Install Docker, or on Debian, as root: deploy/engine/install.sh" >&2
    exit 3
  }
  [ "$(id -u)" = 0 ] || { echo "No Docker engine answers, and only root can start one." >&2; exit 3; }
  mkdir -p "$dir"
  for _ in 1 2 3; do # after a crash the old containerd may still be dying: try again
    ours >/dev/null || rm -f "$dir/pid"
    setsid nohup dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" -H "$sock" \
      --ip 127.0.0.1 --log-opt max-size=5m --default-address-pool base=172.30.0.0/16,size=24 \
      >>"$dir/log" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 120); do
      if answers "$sock"; then echo "DOCKER_HOST=$sock"; exit 0; fi
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.5
    done
    sleep 1
  done
  echo "dockerd does not start; its log is $dir/log:" >&2
  tail -3 "$dir/log" >&2
  exit 3
  ;;
stop | purge)
  if pid=$(ours); then
    kill "$pid"
    for _ in $(seq 120); do ours >/dev/null || break; sleep 0.5; done
    if ours >/dev/null; then echo "dockerd $pid does not stop; its log is $dir/log" >&2; exit 1; fi
  fi
  if [ "$1" = purge ]; then
    if mountpoint -q "$dir/data"; then umount "$dir/data"; fi # left behind by an engine that was killed
    rm -rf "$dir"
  fi
  ;;
*)
  echo "usage: engine.sh start|stop|purge" >&2
  exit 2
  ;;
esac
