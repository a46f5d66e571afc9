#!/usr/bin/env bash
# Installs Debian packages without starting their services, because tests start servers themselves. Needs root.
#
#   scripts/install_without_services.sh PACKAGE...
#
#   POLICY_RC_D  the program that refuses to start services during the installation [default: /usr/sbin/policy-rc.d]
set -euo pipefail
policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}

# An existing policy belongs to somebody else, and stays. Ours is always removed, or it would keep all later packages from starting
# their services.
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
echo "installing $*"
apt-get update -qq
# Each unpacked package would print three lines; errors are on standard error.
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
