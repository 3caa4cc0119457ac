#!/usr/bin/env bash
# docker.sh up|down|build|test: the cluster in containers, for a machine with a Docker engine or with nothing.
#   up     an engine (a private one where none answers), images, three ZooKeeper servers and three brokers, healthy
#   down   ends them; the data stay in Docker's volumes (`down --volumes` removes those too)
#   build  the images
#   test   the container tests; what this script started for them is ended again
# KLAMM_PORTS=90 puts broker N on 908N instead of 808N. More of it: COMPOSE_FILE=compose.yaml:compose.large.yaml,
# COMPOSE_PROFILES=observability (or spark).
set -euo pipefail
cd "$(dirname "$0")"
export COMPOSE_FILE=${COMPOSE_FILE:-compose.yaml}
usual=${DOCKER_HOST:-}

compose() { docker compose --progress quiet "$@"; }

start_engine() {
  local engine
  engine=$(engine/engine.sh start)
  export "${engine?}"
}

is_private() { [ "$DOCKER_HOST" = "unix://${KLAMM_ENGINE_DIR:-/var/tmp/klamm-docker}/docker.sock" ]; }

stop_engine_if_private() { # and nothing runs on it any more
  if is_private && [ -z "$(docker ps -q)" ]; then engine/engine.sh stop; fi
}

build() {
  engine/base-images.sh
  compose build -q
}

up() {
  start_engine
  build
  compose up --detach --wait --no-build
  local ports=${KLAMM_PORTS:-80}
  if is_private && [ "$usual" != "$DOCKER_HOST" ]; then
    echo "This machine had no Docker engine; a private one runs now. Type first:"
    echo "  export DOCKER_HOST=$DOCKER_HOST"
  fi
  cat <<TEXT
Three brokers and three ZooKeeper servers run, and a Spark job that reads their logs. The dashboard: http://127.0.0.1:${ports}81/

  docker exec klamm-broker1-1 klamm status
  docker exec klamm-broker1-1 klamm topics create orders --partitions 6 --replication-factor 3
  docker kill klamm-broker2-1

The whole tour is in deploy/README.md; \`make docker-down\` ends it.
TEXT
}

down() {
  start_engine
  compose --profile '*' down --remove-orphans "$@"
  stop_engine_if_private
  echo "All containers are gone. Their data stay in Docker's volumes until \`deploy/docker.sh down --volumes\`."
}

leftovers() { # by the labels that the tests give to all they make
  docker ps -aq --filter label=klamm.tests
  docker network ls -q --filter label=klamm.tests
  docker volume ls -q --filter label=klamm.tests
}

run_tests() {
  start_engine
  local status=0
  (cd .. && KLAMM_REQUIRE=docker TESTCONTAINERS_RYUK_DISABLED=true \
    .venv/bin/python -m pytest -q -m docker tests/docker "$@") || status=$?
  if [ -n "$(leftovers)" ]; then
    echo "The tests left containers or networks behind:" >&2
    docker ps -a --filter label=klamm.tests >&2
    docker ps -aq --filter label=klamm.tests | xargs -r docker rm -fv >/dev/null
    docker network ls -q --filter label=klamm.tests | xargs -r docker network rm >/dev/null
    docker volume ls -q --filter label=klamm.tests | xargs -r docker volume rm >/dev/null
    status=1
  fi
  stop_engine_if_private
  return "$status"
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
up) up ;;
down) down "$@" ;;
build) start_engine && build ;;
test) run_tests "$@" ;;
*)
  sed -n '2,9s/^# //p' "$0" >&2
  exit 2
  ;;
esac
