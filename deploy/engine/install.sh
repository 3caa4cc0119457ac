#!/usr/bin/env bash
# Installs a Docker engine with compose and buildx from Debian's packages (root; Debian 12 or later). For CI and for
# bare machines: where there is a Docker already, nobody needs this.
set -euo pipefail

has_everything() {
  command -v dockerd mmdebstrap iptables && docker compose version && docker buildx version
} >/dev/null 2>&1
if has_everything; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "This installs Debian's packages, as root. Elsewhere: install Docker with its compose plugin your way." >&2
  exit 1
fi

candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p'; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends docker.io iptables mmdebstrap >/dev/null

# Bookworm has compose 1.29 and no buildx. The next release's two plugins need nothing but libc6 >= 2.34; everything
# else of that release is pinned away.
case $(candidate docker-compose) in
1.* | "(none)" | "")
  sources=/etc/apt/sources.list.d/klamm-docker-plugins.sources
  { # the machine's own first source, of another suite
    if [ -s /etc/apt/sources.list.d/debian.sources ]; then
      sed '/^$/,$d; s/^Suites:.*/Suites: trixie/' /etc/apt/sources.list.d/debian.sources
    else
      sed -n '/^deb /{s/ bookworm / trixie /p;q}' /etc/apt/sources.list
    fi
  } >"$sources"
  grep -q '^deb ' "$sources" && mv "$sources" "${sources%.sources}.list"
  cat >/etc/apt/preferences.d/klamm-docker-plugins <<'PINS'
Package: *
Pin: release n=trixie
Pin-Priority: -1

Package: docker-compose docker-buildx
Pin: release n=trixie
Pin-Priority: 990
PINS
  apt-get update -qq
  ;;
esac
apt-get install -y -qq --no-install-recommends docker-compose docker-buildx >/dev/null
has_everything || { echo "The packages are installed, and still something is missing: docker compose, buildx?" >&2; exit 1; }
