#!/usr/bin/env bash
# The base images that our Dockerfiles name, and Prometheus with the profile `observability`: pulled where a registry
# answers, otherwise built as stand-ins from Debian's packages and labelled `klamm.standin`. A stand-in trusts the
# certificates that this machine trusts and uses its package sources: never push one. Debian has no Grafana.
set -euo pipefail
DEBIAN=debian:bookworm-slim
PYTHON=python:3.11-slim-bookworm
PROMETHEUS=$(sed -n 's/^ *image: \(prom\/prometheus:.*\)/\1/p' "$(dirname "$0")/../compose.yaml")

is_here() { docker image inspect "$1" >/dev/null 2>&1; }
fetch() { is_here "$1" || timeout 120 docker pull -q "$1" >/dev/null 2>&1; }

if ! fetch "$DEBIAN"; then
  command -v mmdebstrap >/dev/null || {
    echo "$DEBIAN cannot be pulled, and without mmdebstrap no stand-in can be built." >&2
    exit 1
  }
  echo "no registry answers: building a stand-in for $DEBIAN"
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  sources=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    if [ -s "$file" ]; then sources+=("$file"); fi
  done
  mkdir "$tmp/ca"
  cp /usr/local/share/ca-certificates/*.crt "$tmp/ca/" 2>/dev/null || true # none: nothing more to trust
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$tmp/pip.conf"
  cat >"$tmp/90klamm" <<'APT'
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::Check-Valid-Until "false";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };
APT
  nice mmdebstrap --quiet --variant=minbase --include=ca-certificates \
    --aptopt='Dir::Cache::pkgcache ""' --aptopt='Dir::Cache::srcpkgcache ""' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="copy-in $tmp/90klamm /etc/apt/apt.conf.d" \
    --customize-hook="copy-in $tmp/pip.conf /etc" \
    --customize-hook="sync-in $tmp/ca /usr/local/share/ca-certificates" \
    --customize-hook='chroot "$1" update-ca-certificates >/dev/null 2>&1' \
    bookworm "$tmp/root.tar" "${sources[@]}"
  docker import -c 'CMD ["bash"]' -c 'LABEL klamm.standin=true' \
    -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$tmp/root.tar" "$DEBIAN" >/dev/null
fi

if ! fetch "$PYTHON"; then
  echo "no registry answers: building a stand-in for $PYTHON"
  docker build -q -t "$PYTHON" - >/dev/null <<DOCKERFILE
FROM $DEBIAN
RUN apt-get update && apt-get install -y --no-install-recommends netbase tzdata python3 python3-venv && python3 -m venv /usr/local && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
LABEL klamm.standin=true
CMD ["python3"]
DOCKERFILE
fi

case ,${COMPOSE_PROFILES:-}, in *,observability,* | *,\*,*)
  if ! fetch "$PROMETHEUS"; then
    echo "no registry answers: building a stand-in for $PROMETHEUS"
    docker build -q -t "$PROMETHEUS" - >/dev/null <<DOCKERFILE
FROM $DEBIAN
RUN apt-get update && apt-get install -y --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/* && mkdir -p /prometheus && chown nobody /prometheus
USER nobody
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
LABEL klamm.standin=true
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
DOCKERFILE
  fi
  ;;
esac
