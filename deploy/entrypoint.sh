#!/bin/sh
# A key that KLAMM_API_TOKEN_FILE or KLAMM_RPC_SECRET_FILE names and that nobody made yet is made here: whichever broker
# of a cluster comes first makes it for all. Then it becomes `klamm`.
set -eu
umask 077
for file in "${KLAMM_API_TOKEN_FILE:-}" "${KLAMM_RPC_SECRET_FILE:-}"; do
  if [ -n "$file" ] && [ ! -e "$file" ]; then
    mkdir -p "$(dirname "$file")"
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$file.$HOSTNAME"
    ln "$file.$HOSTNAME" "$file" 2>/dev/null || [ -s "$file" ] # whole, or not there; somebody else may have been faster
    rm "$file.$HOSTNAME"
  fi
done
exec klamm "$@"
